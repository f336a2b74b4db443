"""The Kafka protocol in Python, for requests that librdkafka does not send or does not answer fast enough.
May import ``core``, ``records``, ``wire``, ``text`` and the modules of ``client`` itself. Start with
``link``, one connection, and ``cluster``, which finds leaders and offsets.
"""
