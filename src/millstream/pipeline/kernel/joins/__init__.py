"""Joins: stream with stream, stream with table, table with table, and gathering parts of one event."""
