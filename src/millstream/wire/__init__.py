"""Frames, requests and answers of the Kafka protocol, without I/O.

Schemas come from ``kio``, generated from Kafka's own. May import: ``millstream.errors``. Imported by the
broker, and by the client where it speaks the protocol itself.
"""
