"""The broker: connections, requests and groups, on top of the log.
It may import ``records``, ``log``, ``wire`` and the modules at the top of ``millstream``. Only the parts that
start a broker import it: the embedded ``Broker``, the pytest plugin and ``millstream serve``. Start reading
at ``server`` (listening and shutting down), ``connection`` (one client) and ``node`` (what every handler
works on).
"""
