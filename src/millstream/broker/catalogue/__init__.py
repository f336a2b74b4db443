"""What a broker knows besides its records, in one SQLite file: topics, settings, offsets, producers' ids.
``losses``, ``copy_state`` and ``scram`` keep tables of their own. ``topic_names``, ``quotas`` and ``lineage``
are rules about what is kept, without I/O. May import ``core``, ``log``, the committed offset in
``broker.groups`` and what ``broker.transactions`` keeps. It knows nothing of partitions. Start with
``catalogue``, then ``database``, the one thread that writes. ``rebuild`` makes a new catalogue when the old
one is damaged.
"""
