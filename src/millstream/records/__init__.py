"""The record batch: Kafka's format v2, the unit in which records are produced, kept and fetched.

May import: ``millstream.errors``. Imported by everything that touches records.
"""
