"""Requests and responses of every kind and version, read and written from Kafka's own schemas.

``requests`` reads, ``answers`` writes, ``schemas`` is the only module that imports kio.
"""
