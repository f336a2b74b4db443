"""Old segments in an archive: a directory or an object store. May import ``core``, ``records``, the modules
of ``log`` itself, ``segment`` and ``storage``. Start with ``journal``, which records what the archive holds.
``copy`` takes segments there, ``reader`` reads them as if they were local, and ``object`` is the format of
one archived segment.
"""
