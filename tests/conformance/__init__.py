"""Runs test suites that others wrote for Apache Kafka and its clients against millstream, or against Kafka.

    python -m tests.conformance                    run all of them against millstream
    python -m tests.conformance --against kafka    the same against Apache Kafka
    python -m tests.conformance --only sarama      one of them

``passes_on_kafka.json`` lists the tests that pass on Apache Kafka (``--record`` writes it). The run fails if
one of them does not pass on millstream and has no entry in ``reasons.py``. It is not part of ``make test``,
because it takes minutes.
"""
