"""Partitions on disk: segments, indexes, retention, recovery, without asyncio and without the wire format.

May import ``core`` and ``records``. Imported by the broker, and by ``millstream log check``, which reads a
stopped broker's directory. Start with ``partition``, the log of one partition. ``segment`` and ``storage``
are below it, ``recovery``, ``compaction`` and ``archive`` beside it, and ``directory`` holds all partitions.
"""
