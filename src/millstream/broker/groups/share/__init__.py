"""Share groups (KIP-932): topics whose records are given out one by one and acknowledged one by one. May
import ``core``, ``log``, ``broker.catalogue`` and ``broker.groups``.

Membership: ``group`` is the state machine of one group's members, ``assignor`` decides which partitions each
member reads, ``snapshot`` is how the catalogue keeps the members, and ``coordinator`` connects the groups to
their clients.

Delivery: ``share_partition`` is the state machine of one partition of one group, over the runs of records in
``in_flight``; ``saved_state`` is how the catalogue keeps it, ``sessions`` what each consumer fetches, and
``delivery`` holds them all. Start with ``group`` and ``share_partition``.
"""
