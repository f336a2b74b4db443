"""A pipeline shown at work, for ``millstream demo`` and ``millstream example run``: a broker, Spark, the job
and a panel that is redrawn. May import what ``cli`` may, and ``terminal``. Only ``stage`` may import
``embedded``, to start a broker. Start with ``stage``, then ``example_stage``, which puts an example on it.
"""
