"""Records as columns: fetched batches to Arrow, Arrow to batches, and plain JSON values to columns. May
import ``core`` and the modules of ``records`` itself. Start with ``arrow``. It uses the compiled loops
(``compiled``, ``json_values``) or, where there is no C compiler, numpy (``with_numpy``).
"""
