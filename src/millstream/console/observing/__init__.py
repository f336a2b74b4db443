"""What the console knows of a cluster: sampled once for all viewers, with the history of the last hour. May
import ``core``, ``client`` and ``jobs``. Start with ``snapshot``, which all screens are made from, then
``sampler`` and ``observer``, which make it.
"""
