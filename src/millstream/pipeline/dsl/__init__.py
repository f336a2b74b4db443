"""What a user writes: topologies, streams, windows, joins, patterns, sinks. Declarations only; no Spark is
loaded.

Start with ``topology`` and ``streams``.
"""
