"""Patterns: sequences of events of one key, and what a match reports. May import ``core``, ``kernel``,
``state`` and the exact sums of ``windows``. Start with ``automaton``, the state machine of a pattern.
``pattern`` is the program that runs it.
"""
