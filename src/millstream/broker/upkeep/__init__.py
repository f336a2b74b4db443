"""Work on the logs that the clock asks for: retention, checkpoints, backups, archiving, compaction. It also
reports which logs have stopped. ``broker.housekeeping`` decides when each runs. May import ``core``, ``log``,
``broker.catalogue``, ``broker.horizon`` and ``broker.topics``. Start with ``maintenance``, then ``archiving``
and ``compacting``.
"""
