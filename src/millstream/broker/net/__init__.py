"""Clients' connections: bytes in, requests in order, responses out, and a fair share of the loop for each
client.

``connection`` is one client. ``turn`` does once per turn of the loop what its requests have in common.
May import ``broker.api`` (to dispatch) and the partitions in ``broker.topics``; knows nothing of groups.
"""
