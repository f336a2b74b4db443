"""Pages that stay up to date: server-sent events, pages that follow a topic, and visitors who leave early.
May import ``core``, ``observing`` and ``views``. Start with ``updates``.
"""
