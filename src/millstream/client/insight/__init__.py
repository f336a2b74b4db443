"""What can be learned about a cluster from outside: lag, open transactions, how far back topics reach,
records as they are stored. May import ``core``, ``records``, ``wire`` and the rest of ``client``. Start with
``lag``.
"""
