"""Keyed state that knows what changed in it: in memory, on disk, in PostgreSQL or in Cassandra.

Start with ``containers`` and ``store``. State outside of memory is in a ``table``: ``disk``, ``postgres`` and
``cassandra`` are the kinds, and ``backends`` opens one by its address. ``versions`` keeps the state in
Spark's checkpoint. ``fitting`` and ``layouts`` read state that was kept with other columns. Imports only
``core`` and the kernel's ``channels``.
"""
