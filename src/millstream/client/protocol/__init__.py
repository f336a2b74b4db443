"""The Kafka protocol spoken by ourselves, for what librdkafka does not ask or not fast enough.

``raw`` is one connection, ``cluster`` finds leaders and offsets.
"""
