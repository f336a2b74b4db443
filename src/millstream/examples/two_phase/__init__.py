"""Two-phase commit: a row in PostgreSQL and a record in the log, both or neither."""
