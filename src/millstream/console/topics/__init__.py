"""Topics: the list, one topic, its settings, and what changes it."""
