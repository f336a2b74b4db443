"""Pipelines to start from, each with a data generator that knows the answers. May import ``core``,
``client``, ``pipeline``, ``testing`` and, like any user's program, the public names of ``millstream``. Start
with ``catalogue``, which lists them. ``feed`` sends a generator's events to a broker. ``trial`` sends them
through the test driver.

An example in the catalogue is a package of four files (``example`` says what each provides):

    __init__.py   EXAMPLE: its name, what it shows, and what to look at while it runs
    pipeline.py   the topology, written like a user's file
    generate.py   Generator: events with their times, from a seed, and what is planted among them
    check.py      check: compares what the pipeline found with what was planted

``two_phase`` is not in the catalogue: it is a plain program, without a pipeline.
"""
