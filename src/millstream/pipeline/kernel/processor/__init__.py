"""The user's own processors: a function called for every event of a key, with state and timers."""
