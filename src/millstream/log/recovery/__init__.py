"""Opens a log after a clean stop or a crash, and checks a stopped broker's files. May import ``core``,
``records`` and the rest of ``log``. Start with ``recovery``, which opens a log. ``shortfall`` decides when
too much is missing to serve it. ``check`` reads everything and changes nothing.
"""
