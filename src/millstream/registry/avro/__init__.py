"""Avro: schemas, and which schema can read what another wrote. May import ``core`` and what all types of
schemas share in ``registry``. Start with ``schema``, which parses, then ``resolution``, which compares.
"""
