"""Pipelines to start from, each with a generator of data that knows the answers.

An example is a package of four files, all alike (``shape`` says what each gives):

    __init__.py   EXAMPLE: its name, what it shows, and what to look at while it runs
    pipeline.py   the topology, written as a user's file is; it is shown as it stands
    generate.py   Generator: events with their times from a seed, and what was planted among them
    check.py      check: what was found, held against what was planted

``catalogue`` lists them. ``feed`` sends a generator's events to a broker, ``trial`` through the test driver.

May import: ``client``, ``pipeline``, ``testing`` and the public names of ``millstream``, as any user's
program.
"""
