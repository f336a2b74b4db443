"""Suites that others wrote for Apache Kafka and its clients, pointed at a broker's address: ours, or Kafka.

    python -m tests.conformance                    run all of them against millstream
    python -m tests.conformance --against kafka    the same against Apache Kafka
    python -m tests.conformance --only sarama      one of them

What passes on Apache Kafka is kept in ``passes_on_kafka.json`` (written by ``--record``); whatever of that
does not pass here, and is not listed with its reason in ``reasons.py``, fails the run. Not part of
``make test``: it takes minutes.
"""
