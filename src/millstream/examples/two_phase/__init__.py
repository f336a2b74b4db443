"""Two-phase commit: an order is a row in PostgreSQL and a record in the log, or neither."""
