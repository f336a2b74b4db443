"""A segment: one file of batches, its indexes, and the ways to walk and search it.

May import ``log.storage``. Start with ``segment``.
"""
