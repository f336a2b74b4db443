"""Which record of a key is the newest: what compaction asks. ``newest`` is the way in; the loops are
compiled, or in plain Python where there is no C compiler (``plain``).
"""
