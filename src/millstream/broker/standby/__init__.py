"""A second broker that keeps a copy of everything, and takes over by promotion. May import ``core``, ``log``,
``wire``, ``broker.catalogue``, ``broker.topics`` and the deadlines in ``broker.net``. Start with ``role``,
which says which broker leads. Then read ``standby``, which copies, and ``followers``, the leader's side.
``promotion`` decides when a standby may lead, and ``in_sync`` holds acknowledgements until the standby has
the records.
"""
