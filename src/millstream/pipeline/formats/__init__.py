"""Record values to columns and back: JSON, Avro, Protobuf.

``decode`` is the way in from a source, ``encoded`` says which columns a schema gives.
"""
