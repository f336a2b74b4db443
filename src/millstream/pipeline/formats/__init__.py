"""Record values to columns and back: JSON, Avro, Protobuf. May import ``core``, ``sqltypes``, ``records``,
``registry``, ``dsl``, the options of ``connector``, and the column names of the kernel's joins. Start with
``decode``, the way in from a source, then ``value_schemas``, which declares values that carry the id of a
schema.
"""
