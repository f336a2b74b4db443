"""Transactions: ``transaction`` is the life of one transactional id, without I/O; ``coordinator`` makes it
durable.

``decisions`` is what the catalogue keeps, ``markers`` tells partitions what was decided, ``restart`` finds
out what was open before a restart.
"""
