"""Share groups (KIP-932): topics whose records are given out one by one and acknowledged one by one. May
import ``core`` and ``broker.groups``.

Membership: ``assignor`` decides which partitions each member reads, ``snapshot`` is how the catalogue keeps
the members, and ``coordinator`` connects the groups to their clients. Start with ``group``, the state
machine.
"""
