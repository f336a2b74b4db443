"""The keyed kernel: time, state and order for every stateful operation that Spark itself does not have.
Rows are divided by key into a fixed number of *buckets*. One call processes a bucket's whole batch, with
the bucket's state and its clock. What it does with the rows is a *program*: a window, a pattern, a join,
or the user's own processor. May import: ``millstream.errors`` and, from ``pipeline``, ``expressions.py``
and ``state_limit.py``. Imported by ``pipeline``, and by ``testing``, whose driver runs the same programs
without Spark: only ``spark.py`` knows Spark. Start with ``program.py`` (what a program is), ``step.py``
(one batch of one bucket), ``clock.py`` (the watermark, late and idle sources) and ``state.py`` (state
that records its changes). Then read by operation. Windows: ``windows.py`` (tumbling, hopping),
``sliding.py`` and ``sessions.py`` over ``grouping.py``, ``calls.py``, ``aggregates.py`` and
``results.py``. Joins: ``joins.py`` (two streams), ``tables.py``, ``foreign.py`` and ``gather.py``, over
``lookup.py`` and ``naming.py``. Patterns: ``pattern.py`` over ``automaton.py`` and ``measures.py``. The
user's processor: ``processor.py``, with ``event.py``, ``emitting.py`` and ``failing.py``. State outside
memory: ``outside.py`` and its adapters. Between the kernel and Spark: ``packing.py`` (the shuffled blobs)
and ``versions.py`` (state in the checkpoint).
"""
