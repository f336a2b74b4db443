"""From a topology to Spark queries: what runs together, what each operator is, and what an edit changed.

Start with ``plan``.
"""
