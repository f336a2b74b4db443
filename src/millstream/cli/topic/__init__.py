"""``millstream topic``: creates, lists, describes, alters, deletes, trims and exports topics. May import
``core``, ``client``, ``integration``, ``terminal`` and, of ``cli``, only ``schema``. Start with ``command``,
which parses and prints. ``description`` and ``export`` do the two longest subcommands.
"""
