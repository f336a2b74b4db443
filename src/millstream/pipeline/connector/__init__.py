"""``format("millstream")``: topics as DataFrames, for any Spark program. May import ``core``, ``client`` and
``records``, and nothing else of ``pipeline``. Start with ``datasource``, which Spark finds. ``source`` reads
batches, ``stream_reader`` reads streams, and ``sink`` writes. ``offsets`` decides what a micro-batch reads,
``fetching`` fetches it, and ``data_loss`` notices what was deleted before it was read. A job reads through
this data source as any Spark program does. It also uses some modules directly, such as ``offsets``,
``tick_file`` (to ask for batches) and ``batch_encoding`` (to encode rows).
"""
