"""What a broker knows besides its records, in one SQLite file: topics, settings, offsets, producers' ids.

``catalogue`` is the way in, ``database`` the one thread that writes, ``rebuild`` makes a new catalogue when
the old one is damaged.
"""
