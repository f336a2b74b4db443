"""Topics and their partitions as the broker serves them: look-up, changes, appends, waiting readers, syncs.
May import ``core``, ``log``, ``records``, ``wire`` and ``broker.catalogue``. Turns, connections, standbys and
gates are above, and known here only as protocols. Start with ``partition``. ``local_topics`` finds topics,
``admin`` creates, changes and deletes them, and ``logs`` opens their logs.
"""
