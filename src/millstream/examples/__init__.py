"""Pipelines to start from, each with a data generator that knows the answers. Begin with ``catalogue``,
which lists them. ``feed`` sends a generator's events to a broker, ``trial`` sends them through the test
driver. May import ``client``, ``pipeline``, ``testing`` and the public names of ``millstream``, like any
user's program.

An example is a package of four files, all alike (``shape`` says what each provides):

    __init__.py   EXAMPLE: its name, what it shows, and what to look at while it runs
    pipeline.py   the topology, written like a user's file; it is shown unchanged
    generate.py   Generator: events with their times, from a seed, and what was planted among them
    check.py      check: compares what was found with what was planted
"""
