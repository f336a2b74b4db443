"""Clients' connections: bytes in, requests in order, responses out, and a fair share of the event loop for
each client. May import ``core``, ``wire``, ``broker.topics`` and the quotas in ``broker.catalogue``. The
requests themselves are above, in ``broker.api``. Start with ``connection``, one client. ``shared_io`` is what
all connections share, and ``loop_turn`` does once per turn of the loop the work that their requests have in
common.
"""
