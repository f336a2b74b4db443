"""Consumer groups: the list, one group with its lag, and what changes it."""
