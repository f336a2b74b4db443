"""Partitions on disk: segments, indexes, retention, recovery, without asyncio and without the wire format.

May import: ``records`` and the modules at the top of the package. Imported by the broker, and by
``millstream log check``, which reads a stopped broker's directory. Start with ``partition``, the log of
one partition; ``segments`` and ``segment`` are below it, and ``directory`` holds all partitions.
"""
