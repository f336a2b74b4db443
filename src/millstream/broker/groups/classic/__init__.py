"""The classic group protocol: the members agree among themselves who reads what. May import ``core``,
``wire`` and ``broker.groups``. Start with ``group``, the state machine without I/O. ``coordinator`` runs it.
"""
