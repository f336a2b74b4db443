"""Records as columns: fetched batches to Arrow, Arrow to batches, and plain JSON values to columns.

``arrow`` is the way in. It uses the compiled loops (``compiled``, ``json_values``) or, where there is no C
compiler, numpy (``with_numpy``). May import the rest of ``records``.
"""
