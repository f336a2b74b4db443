"""Windows and their aggregates: fixed, sliding with every event, sessions. May import ``kernel`` and
``state``. Start with ``fixed``, the simplest program, then ``aggregates``.
"""
