"""Random topologies over random input, checked against a model in plain Python: millstream may refuse one,
but must never give a wrong result. A case (``case.py``) is drawn from a seed: sources with odd values, out
of order; steps over them; the cuts of the input into batches and runs; and edits between the runs. Every
step knows how it is declared and what it gives, which is written from the docs alone (``stateless.py``,
``windows.py``, ``keyed.py``, ``joins.py``, ``sinks.py``). ``on_driver.py`` runs a case in the test driver,
``on_spark.py`` as jobs on Spark with real checkpoints. ``python -m tests.random_topologies`` runs many
cases; ``--help`` says how. Start with ``case.py``.
"""
