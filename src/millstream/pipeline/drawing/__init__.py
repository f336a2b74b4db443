"""Topologies as pictures: ``graph`` makes boxes and arrows, ``text`` and ``svg`` draw them."""
