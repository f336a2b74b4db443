"""The consumer group protocol (KIP-848): the broker assigns partitions. May import ``core``, ``wire``,
``broker.groups`` and, for members that use the classic protocol, ``classic``. Start with ``group``, the state
machine without I/O. ``coordinator`` runs it.
"""
