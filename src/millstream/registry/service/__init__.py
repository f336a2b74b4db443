"""The registry itself: a topic as a table, decisions on changes to it, and Confluent's HTTP interface.

``store`` and ``registrar`` do no I/O; ``keeper`` follows and writes the topic, ``server`` is HTTP.
"""
