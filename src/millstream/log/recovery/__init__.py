"""Opening a log after a crash, and checking a stopped broker's files.

``recovery`` opens, ``shortfall`` decides when too much is missing to serve a log, ``check`` reads everything
and changes nothing.
"""
