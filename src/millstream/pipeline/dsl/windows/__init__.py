"""Windows and their aggregates as they are declared. May import ``core``, ``sqltypes``, ``kernel`` with its
windows, and the modules of ``dsl`` below ``streams``. Imported by ``dsl``, ``planning`` and ``spark``. Start
with ``window``.
"""
