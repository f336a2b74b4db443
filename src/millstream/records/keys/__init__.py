"""Which record of a key is the newest: the question that compaction asks. May import ``core`` and the modules
of ``records`` itself. Start with ``newest``. The loops are compiled, or in plain Python where there is no C
compiler (``plain``).
"""
