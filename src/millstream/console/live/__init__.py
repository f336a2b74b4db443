"""Pages that stay up to date: server-sent events, followed topics, and visitors who leave early."""
