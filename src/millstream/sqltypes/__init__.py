"""Spark's types by their names, without Spark: DDL, Arrow's types for them, and values. May import ``core``.
Start with ``ddl``.
"""
