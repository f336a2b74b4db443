"""Reading, writing and administration through librdkafka."""
