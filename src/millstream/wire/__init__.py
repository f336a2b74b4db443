"""Frames, requests and responses of the Kafka protocol, without I/O. Schemas come from ``kio``, which
generates them from Kafka's own. It may import only ``core``; ``broker``,
``client`` and ``pipeline`` may import it. Start reading at ``frame`` (the header of every request), ``codec``
(any request, by schema), and ``hot`` (the requests of a busy broker, written by hand).
"""
