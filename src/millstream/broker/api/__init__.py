"""Request handlers, a short file per family; importing this package registers them all."""
