"""Topics: the list, one topic, its settings, and the changes to it. May import ``core``, ``client``, the
modules of ``console`` itself, ``messages``, ``observing`` and ``pipelines``. Start with ``listing``, the
model of the list, then ``listing_pages``, which shows it.
"""
