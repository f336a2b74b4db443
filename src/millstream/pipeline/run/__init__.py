"""A job while it runs: its queries, checkpoint, deliveries and reports. May import ``core``, ``client``,
``views`` and everything else in ``pipeline`` but ``sql``. Imported by ``cli``, and by ``testing`` for what
needs no Spark. A job is launched by ``launch``, for the command line, for ``flow.run`` (``options``) and for
``flow.start`` (``handle``). Start with ``job``: it checks the broker (``broker_setup``), has its queries made
(``queries``), and starts, watches and stops them. ``bounded`` and ``rebuild`` run jobs one after the other.
The other rooms do not import ``job``: ``checkpoint`` (where a job continues), ``delivery`` (the only place
where results leave Spark) and ``reporting`` (what a job tells about its batches). After a crash,
``checkpoint.claim`` says which queries and operators continue, Spark's own log says which batch comes next,
and ``delivery.ledger`` says whether that batch is already delivered.
"""
