"""Frames, requests and responses of the Kafka protocol, without I/O. Schemas come from ``kio``, which
generates them from Kafka's own. It may import only the modules at the top of ``millstream``; ``broker``,
``client`` and ``pipeline`` may import it. Start reading at ``frame`` (the header of every request), ``codec``
(any request, by schema), and ``produce`` and ``fetch`` (the hot requests, written by hand).
"""
