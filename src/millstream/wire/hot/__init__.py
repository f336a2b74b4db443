"""The requests of a busy broker, read and written by hand because a general codec is too slow for them."""
