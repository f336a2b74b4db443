"""A job's checkpoint directory: the job's own notes, Spark's logs of offsets, and the state of operators.
Nothing runs here, so commands read stopped jobs with it (``state_reader``). May import ``core``,
``connector``, ``dsl``, ``planning``, ``kernel`` and ``spark``. Start with ``checkpoint``, which lists the
files.
"""
