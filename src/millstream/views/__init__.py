"""Views: tables that pipelines keep up to date, in SQLite or PostgreSQL. No Spark in here.

``views`` is the way in: opening a database, reading, following. Pipelines write views; the console, the
command line and tests read them. May import ``core`` and ``sqltypes``.
"""
