"""The user's own processors: a function called for every event of a key, with state and timers. May import
``core``, ``kernel`` and ``state``. Start with ``processor``.
"""
