"""Converts groups between the classic and the consumer protocol while their members continue to read. May
import ``core``, ``wire``, ``broker.groups`` and both kinds, ``classic`` and ``consumer``. Start with
``migration``, which decides when a group changes over. ``conversion`` makes the new group, without I/O.
``classic_requests`` takes requests of the classic protocol to groups of either kind.
"""
