"""``millstream run``: runs a pipeline on Spark, with progress, restarts and ``--watch``. May import ``core``,
``client``, ``views``, ``pipeline`` and ``terminal``. Start with ``command``, which parses the ``options``,
then ``running``, which runs the job at a terminal.
"""
