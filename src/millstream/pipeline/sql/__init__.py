"""Spark SQL expressions in plain Python: exact enough to be trusted, and refused where they are not. Each
expression is parsed (``parse.py``), given types by Spark's rules, and compiled to a function of a row
(``compile.py``). Functions are in tables by family (``text.py``, ``times.py``, ...). What is not in the
tables is refused, never guessed. May import: ``expressions.py`` and ``schema.py`` of ``pipeline``.
Imported by ``testing``. Start with ``compile.py``.
"""
