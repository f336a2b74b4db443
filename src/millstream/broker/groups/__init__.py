"""Groups of every kind. ``group`` says what every kind offers. The kinds are rooms, ``classic``, ``consumer``
and ``share``, and ``migration`` converts the first two into each other. ``directory`` holds all groups by
name; ``offsets`` and ``expiry`` look after their committed offsets. May import ``core``, ``broker.catalogue``
and the rooms inside. Start with ``coordinator``, which puts these parts together.
"""
