"""Partitions as the broker serves them: appending, waiting readers, syncs, look-ups, and deletion.

Start with ``partition``.
"""
