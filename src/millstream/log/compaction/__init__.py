"""Compaction keeps the newest record of each key.

``compaction`` decides what is dirty and swaps new segments in, ``single_pass`` writes them, ``child`` runs a
pass in a process of its own, ``batches`` holds Kafka's rules for what is left of a batch.
"""
