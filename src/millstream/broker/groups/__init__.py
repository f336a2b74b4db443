"""Consumer groups: ``coordinator`` connects the two protocols to time, storage and clients.

``classic`` and ``consumer`` are the protocols, as state machines without I/O. ``committed`` is a committed
offset.
"""
