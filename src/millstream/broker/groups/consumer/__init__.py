"""The consumer group protocol (KIP-848): the broker assigns partitions. ``group`` is the state machine."""
