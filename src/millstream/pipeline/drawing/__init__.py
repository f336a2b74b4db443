"""Topologies as pictures. May import ``dsl`` and ``planning``. Start with ``graph``, which turns a topology
into boxes and arrows. ``layout`` places them; ``text`` and ``svg`` draw them.
"""
