"""A second broker that keeps a copy, and takes over by promotion.

``standby`` copies, ``followers`` is the leader's side, ``promotion`` decides when a standby may lead, and
``in_sync`` holds acknowledgements until the standby has the records.
"""
