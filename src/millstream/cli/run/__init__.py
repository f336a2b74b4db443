"""``millstream run``: ``command`` parses and prints; one run, its progress, restarts and ``--watch`` are
beside it."""
