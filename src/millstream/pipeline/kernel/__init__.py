"""The keyed kernel: time, state and order for everything stateful that Spark itself does not have.

Rows are divided into a fixed number of *buckets* by key. One call handles a bucket's whole batch, with the
bucket's state and its clock; what is done with the rows is a *program*: a window, a pattern, a join, or the
user's own. Nothing but ``spark.py`` knows of Spark: the same programs run in the test driver.

    clock.py     how far time has come, from what partitions show; who is late, who is idle, who is ahead
    channels.py  names of what comes out
    state.py     state that knows what changed in it
    program.py   what a program is: rows in, rows out on channels
    step.py      one batch of one bucket: clock, late rows, order, then the program
    event.py     an event as a user's function sees it
    failing.py   what is said when that function raises
    packing.py   rows to blobs by bucket and back: what is shuffled
    spark.py     the same as an operator of Spark's, its state in Spark's store

Of the programs, ``pattern.py`` does what ``automaton.py`` works out and ``measures.py`` tells of matches;
``processor.py`` is the user's own, and ``emitting.py`` checks what it gives.
"""
