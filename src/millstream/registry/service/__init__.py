"""The registry itself: a topic as a table, decisions on changes to it, and Confluent's HTTP interface. May
import ``core``, ``client``, the modules of ``registry`` itself and ``protobuf``. Start with ``store``, the
table, then ``registrar``, the decisions; neither does I/O. ``schema_topic`` follows and writes the topic, and
``server`` is HTTP.
"""
