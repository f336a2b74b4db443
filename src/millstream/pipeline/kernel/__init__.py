"""The keyed kernel: time, state and order for everything stateful that Spark itself does not have.

Rows are divided into a fixed number of *buckets* by key. One call handles a bucket's whole batch, with the
bucket's state and its clock; what is done with the rows is a *program*: a window, a pattern, a join, or the
user's own. Nothing but ``spark.py`` knows of Spark: the same programs run in the test driver.

    clock.py     how far time has come, from what partitions show; who is late, who is idle, who is ahead
    channels.py  names of what comes out
    state.py     state that knows what changed in it
    program.py   what a program is: rows in, rows out on channels
    step.py      one batch of one bucket: clock, late rows, order, then the program
    lookup.py    rows found by key and time, by whole columns
    joins.py     two streams within a time; tables.py, foreign.py  tables; gather.py  parts of an event
    event.py     an event as a user's function sees it
    failing.py   what is said when that function raises
    packing.py   rows to blobs by bucket and back: what is shuffled
    spark.py     the same as an operator of Spark's, its state in Spark's store

Windows: ``windows.py`` (tumbling, hopping), ``sliding.py`` (moving with every event) and ``sessions.py`` are
programs; ``grouping.py`` finds a batch's groups, ``calls.py`` and ``aggregates.py`` say and work out what is
made of them, ``results.py`` gives it. Patterns: ``pattern.py`` does what ``automaton.py`` works out, and
``measures.py`` tells of matches. ``processor.py`` is the user's own; ``emitting.py`` checks what it gives.
"""
