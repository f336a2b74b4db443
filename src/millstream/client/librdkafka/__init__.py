"""Reading, writing and administration through librdkafka. May import ``core``, ``wire``, ``text``,
``protocol`` and the modules of ``client`` itself. Start with ``consume`` and ``produce``, then ``admin``.
"""
