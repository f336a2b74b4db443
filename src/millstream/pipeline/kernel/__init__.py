"""The keyed kernel: time, state and order for every stateful operation that Spark itself does not have. Rows
are divided by key into a fixed number of *buckets*. One call processes a bucket's whole batch, with the
bucket's state and its clock. What it does with the rows is a *program*: a window, a pattern, a join, or the
user's own processor. May import ``core``, and nothing else of ``pipeline``. Imported by ``pipeline``, and by
``testing``, whose driver runs the same programs without Spark: only ``spark/kernel_operator`` knows that
Spark is the caller. Start with ``program`` (what a program is), ``bucket`` (one batch of one bucket),
``clock`` (the watermark, late and idle sources) and ``state`` (state that records its changes, in memory or
outside). Then read by operation: ``windows``, ``joins``, ``patterns``, ``processor``. Between the kernel and
Spark: ``packing`` (the shuffled blobs) and ``state.versions`` (state in the checkpoint).
"""
