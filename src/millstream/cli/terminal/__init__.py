"""What all commands share: options, ``--help``, output, input, and mistakes told in plain words. May import
``core``, ``client``, ``registry`` and, of ``cli``, only ``schema``. Start with ``options`` (what users type)
and ``output`` (what they see).
"""
