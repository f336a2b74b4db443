"""The tables that pipelines keep, their rows, and SQL on them. May import ``core``, ``jobs``,
``millstream.views`` and the modules of ``console`` itself. Start with ``tables``.
"""
