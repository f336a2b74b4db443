"""JSON Schema: documents, their differences, and which changes keep old data valid. May import ``core`` and
what all types of schemas share in ``registry``. Start with ``schema``, then ``diff``, which compares two.
"""
