"""What all commands share: options, ``--help``, output, signals, and mistakes told in plain words."""
