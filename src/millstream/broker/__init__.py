"""The broker: connections, requests, groups, over the log.

May import: ``records``, ``log``, ``wire`` and what stands at the top of the package. Imported only by what
starts one: the embedded ``Broker``, the pytest plugin and ``millstream serve``.
"""
