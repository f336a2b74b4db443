"""Where the logs are heading: how far back topics reach, when the disk is full, which groups lose records.
May import ``core``, ``log``, ``broker.catalogue`` and ``broker.topics``. Start with ``watch``, which makes
the forecasts.
"""
