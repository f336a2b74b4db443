"""The classic group protocol: the members agree among themselves who reads what."""
