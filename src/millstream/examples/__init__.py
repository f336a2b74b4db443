"""Pipelines to start from, each with a generator of data that knows the answers.

May import: the public names of ``millstream``, as any user's program.
"""
