"""Jobs that process what is there and then end: which runs that takes, and where each of them ends.

Start with ``runs``, which makes the jobs; ``planner`` decides how far each one reads. May import everything
in ``pipeline`` but ``rebuild``. Imported by ``run``.
"""
