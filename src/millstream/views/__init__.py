"""Views: tables that pipelines keep up to date, in SQLite or PostgreSQL. No Spark in here. Pipelines write
views; the console, the command line and tests read them. May import ``core`` and ``sqltypes``. Start with
``opening``, which opens a database, then ``views``, which says what can be done with an open one.
"""
