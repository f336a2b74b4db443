"""Joins: stream with stream, stream with table, table with table, and the parts of one event put together.
May import ``core``, ``kernel`` and ``state``. Start with ``streams``, then ``tables``.
"""
