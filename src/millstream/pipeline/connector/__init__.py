"""``format("millstream")``: topics as DataFrames, for any Spark program.

``datasource`` is what Spark finds, ``source`` and ``sink`` do the work.
"""
