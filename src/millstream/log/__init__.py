"""Partitions on disk: segments, indexes, retention, recovery. No asyncio, no knowledge of the wire.

May import: ``records`` and what stands at the top of the package. Imported by the broker, and by
``millstream log check``, which reads a stopped broker's directory.
"""
