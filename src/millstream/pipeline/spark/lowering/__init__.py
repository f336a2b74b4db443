"""How the streams of a topology become DataFrames. May import ``core``, ``sqltypes``, ``views``, ``dsl``,
``planning``, ``formats``, ``kernel`` and ``spark``. Imported by ``run`` and ``testing``.

``frames`` builds the DataFrame of every stream of a query, ``kernel_frames`` what goes into stateful
operators and comes out of them, ``rows`` the SQL between a query's outputs and its sinks, and ``sinks`` the
rows that a query hands to its delivery. None of them knows the kinds of streams: each kind has a module here,
which registers with ``lower`` (its rows), ``lower_positioned`` (its rows on their way to a stateful operator)
and ``compose`` (its SQL). Start with ``frames``.
"""

# Imported so that they are registered, whichever module of this package is imported first.
from millstream.pipeline.spark.lowering import (  # noqa: F401
    filters,
    functions,
    selections,
    sources,
    stateful,
    unions,
    windows,
)
