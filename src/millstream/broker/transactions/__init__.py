"""Transactions of many partitions, made durable by the broker. May import ``core``, ``log``, ``wire``,
``broker.catalogue``, ``broker.topics`` and the committed offset in ``broker.groups``. Start with
``transaction``, the life of one transactional id, without I/O. ``coordinator`` makes it durable,
``decisions`` is what the catalogue keeps, ``markers`` tells partitions what was decided, and ``restart``
settles what was open before a restart.
"""
