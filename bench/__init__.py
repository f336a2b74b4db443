"""millstream beside Apache Kafka and Spark's own connector: same machine, same clients, alternating rounds.

``make bench`` runs everything; ``python -m bench --only requests`` one part. A figure is the median of the
rounds; a server's CPU seconds stand beside every rate, because the client is often the limit.
"""
