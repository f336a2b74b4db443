"""Helpers for tests and benchmarks: real servers, fakes and simulations, generators, and client programs.
They may import all of ``millstream``; tests and benchmarks import them. Start reading at ``serve`` (a broker
as a process), ``topics`` (filled and read by a client that is not millstream's) and ``waiting``.
"""
