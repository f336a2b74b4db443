"""Compaction: keeps the newest record of each key. May import ``core``, ``records``, the modules of ``log``
itself, ``segment`` and ``storage``. Start with ``compaction``, which decides what is dirty and swaps new
segments in. ``single_pass`` writes them, ``child`` runs a pass in its own process, and ``batches`` holds
Kafka's rules for what is left of a batch.
"""
