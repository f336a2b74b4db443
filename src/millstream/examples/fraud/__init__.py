"""Card payments with planted fraud (``generator``), and the pipeline that finds it (``topology``)."""
