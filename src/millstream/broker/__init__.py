"""The broker: connections, requests and groups, on top of the log.
It may import ``records``, ``log``, ``wire`` and ``core``. Only the parts that start a broker import it: the
embedded ``Broker``, the pytest plugin and ``millstream serve``. Start reading at ``server`` (listening and
shutting down), ``net.connection`` (one client), ``api`` (what a client may ask, a family of requests a file)
and ``node`` (what a broker consists of). The modules beside this one put the rooms together. No room but
``api`` imports them.
"""
