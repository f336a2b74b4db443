"""From a topology to Spark queries: what runs together, what each operator is, and what an edit changed.
Spark is not loaded. May import ``core``, ``dsl``, and ``kernel`` without its operations. Start with ``plan``,
which divides a topology into queries. ``edited_queries`` and ``edited_columns`` decide how a job continues
after its file was edited.
"""
