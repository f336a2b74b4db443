"""Spark SQL expressions in plain Python, exact enough to be believed, and refused where they are not.

One expression at a time is parsed (``parse``), given types by Spark's rules and made into a function of a row
(``compile``). Functions are tables by family. What is not in the tables is refused, never guessed.
"""
