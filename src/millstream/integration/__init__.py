"""Ways in and out of the log for other systems: files today. May import ``core`` and ``client``. Start with
``files``.
"""
