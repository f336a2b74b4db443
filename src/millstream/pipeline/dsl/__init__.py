"""What a user writes: topologies, streams, windows, joins, patterns, sinks. Declarations only; no Spark is
loaded. May import ``core``, ``sqltypes``, the declared schemas of values in ``formats``, and the programs and
names of ``kernel`` that declarations choose. Start with ``graph``. Users see ``topology`` and ``streams``,
which build that graph of nodes. Each kind of node has a module here or in ``windows`` or ``joins``, and the
rest of ``pipeline`` works on the graph. A new kind of stream is a node, a method of ``Stream``, and a module
of ``spark/lowering`` that makes its rows. A new stateful operator is a program in ``kernel``, a module here
that calls ``stateful.declare``, and a method of ``Stream``. It needs no lowering.
"""
