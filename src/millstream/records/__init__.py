"""The record batch: Kafka's format v2, the unit in which records are produced, stored and fetched.

May import ``core``. Imported by everything that touches records. Start with ``batch``, the header, and
``build``, the records one at a time. ``columns`` handles records by columns, ``keys`` finds the newest of
each key.
"""
