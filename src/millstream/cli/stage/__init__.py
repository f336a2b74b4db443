"""A pipeline shown at work, for ``millstream demo`` and ``millstream example run``: broker, Spark, job,
panel."""
