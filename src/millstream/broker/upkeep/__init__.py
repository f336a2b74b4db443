"""Work beside the server: archiving, compaction, and telling which logs have stopped."""
