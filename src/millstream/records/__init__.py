"""The record batch: Kafka's format v2, the unit in which records are produced, stored and fetched.

May import: ``millstream.errors``. Imported by everything that touches records. Start with ``batch``, the
header, and ``build``, the records one at a time; ``arrow`` handles records by columns.
"""
