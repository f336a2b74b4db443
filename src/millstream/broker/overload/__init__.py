"""Topics with ``millstream.overload=backpressure``: producers wait for their consumers. May import ``core``,
``log``, ``broker.catalogue``, ``broker.groups`` and ``broker.topics``. Start with ``rules``, which decides,
without I/O, which requests are held and for how long. ``backpressure`` applies the rules, and ``description``
puts them in words.
"""
