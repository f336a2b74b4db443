"""The overview: health, disks, rates, and what needs attention first. May import ``core``, ``client``,
``jobs``, the modules of ``console`` itself, ``observing`` and ``pipelines``. Start with ``overview``, then
``pages``.
"""
