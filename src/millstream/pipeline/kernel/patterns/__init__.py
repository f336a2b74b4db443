"""Patterns of events: the automaton, its matches, and what a match reports."""
