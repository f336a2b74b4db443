"""A plan on Spark: sessions, DataFrames, and the kernel's place in Spark's own plan.

Start with ``frames``.
"""
