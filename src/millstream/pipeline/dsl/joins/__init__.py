"""Joins, gatherings and tables as they are declared. May import ``core``, ``sqltypes``, ``kernel`` with its
joins, and the modules of ``dsl`` below ``streams``. Imported by ``dsl``. Start with ``join``.
"""
