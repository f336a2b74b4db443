"""Jobs: the list, the live graph of one, stopping and restarting one, and forgetting one that has ended. May
import ``core``, ``client``, ``jobs``, ``pipeline.drawing``, the modules of ``console`` itself and
``observing``. Start with ``listing``.
"""
