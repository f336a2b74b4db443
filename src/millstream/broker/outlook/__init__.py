"""Where the logs are heading: how far back topics reach, when the disk is full, which groups lose records."""
