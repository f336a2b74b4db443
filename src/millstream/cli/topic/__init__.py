"""``millstream topic``: ``command`` parses and prints; ``describe`` and ``export`` are beside it."""
