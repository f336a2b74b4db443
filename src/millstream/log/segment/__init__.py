"""A segment: one file of batches, its indexes, and the ways to walk and search it. May import ``core``,
``records``, ``storage`` and, of ``log``, only ``transactions``. Start with ``segment``.
"""
