"""Rebuilds views next to the ones being read, and swaps them in.

Start with ``rebuild``, which has the rules and the steps. ``settling`` finishes a rebuild once it is decided;
``job`` calls it before every start, so it does not import ``job``. Imported by ``run``.
"""
