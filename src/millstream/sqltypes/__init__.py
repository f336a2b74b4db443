"""Spark's types by their names and its columns as SQL text, without Spark: DDL, Arrow's types, and what
PySpark's ``Column`` means. May import ``core``. Start with ``ddl`` for types, and ``recorded`` for columns.
"""
