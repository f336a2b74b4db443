"""Keyed state that knows what changed in it: in memory, on disk, in PostgreSQL or in Cassandra."""
