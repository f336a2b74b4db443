"""Consumer groups: the list, one group with its lag, and the changes to it. May import ``core``, ``client``,
``jobs``, the modules of ``console`` itself, ``observing``, ``overview`` and ``pipelines``. Start with
``listing``, the model of the list, then ``pages``, which shows it.
"""
