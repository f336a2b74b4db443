"""A topic's records: decoded, searched, followed, and one by one. May import ``core``, ``client``,
``registry``, the modules of ``console`` itself, ``live``, ``observing`` and ``topics``. Start with
``message``, one record and the query that selects records, then ``search``.
"""
