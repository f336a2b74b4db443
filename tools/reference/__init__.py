"""Writes the reference documentation from the code: ``python -m tools.reference docs/reference``."""
