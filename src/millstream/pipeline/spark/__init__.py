"""Spark itself: the JVM, sessions, Python workers, failures, and the kernel as one of Spark's operators. May
import ``core``, ``wire``, ``dsl`` and ``kernel``; ``lowering`` may import more. Start with ``session``, then
``lowering``, which makes the DataFrames of a topology's streams.
"""
