"""Spark SQL expressions in plain Python, for the test driver only: a running job does not use it. Each
expression is parsed (``parse``), given types by Spark's rules, and compiled to a function of a row
(``compile``). Functions are in tables by family (``text``, ``times`` and others). What is not in the tables
is refused, never guessed. May import ``sqltypes`` and, of ``pipeline``, only ``dsl.expressions``. Imported by
``testing``. Start with ``compile``.
"""
