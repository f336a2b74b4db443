"""Nexmark, the streams of an auction house: events, queries as topologies, their answers by DuckDB, and the
same queries on other stream processors.

The queries are those of the Nexmark benchmark as its maintainers write them in SQL; events are our own, from
a seed. ``generator`` makes them, ``queries`` answers them with millstream, ``answers`` with DuckDB.
"""
