"""Event streaming in one process: a log that speaks the Kafka protocol, and pipelines on Spark."""
