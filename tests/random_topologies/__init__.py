"""Random topologies over random input, held against a model in plain Python: right or refused, never wrong.

A case (``case.py``) is drawn from a seed: sources with odd values, out of order; steps over them; where the
input is cut into batches and runs; and edits between the runs. Every step knows how it is declared with
millstream and, written from the docs alone, what it gives (``stateless.py``, ``windows.py``,
``keyed.py``, ``joins.py``, ``sinks.py``). ``on_driver.py`` runs a case in the test driver, ``on_spark.py`` as
jobs on Spark with real checkpoints.

``python -m tests.random_topologies --help`` runs many of them.
"""
