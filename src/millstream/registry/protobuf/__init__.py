"""Protobuf: ``.proto`` files, their differences, and which changes keep old data readable. May import
``core`` and what all types of schemas share in ``registry``. Start with ``schema``, which parses, then
``diff``, which compares.
"""
