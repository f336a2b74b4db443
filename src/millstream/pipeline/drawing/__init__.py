"""Topologies as pictures. May import ``dsl`` and ``planning``. Start with ``boxes``, what a picture
consists of. ``graph`` makes one of a topology, ``layout`` places the boxes, ``text`` and ``svg`` draw them.
"""
