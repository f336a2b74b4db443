"""Windows and their aggregates: fixed, sliding with every event, sessions."""
