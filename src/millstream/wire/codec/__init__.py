"""Requests and responses of every kind and version, read and written by Kafka's own schemas. Both sides are
here: a broker reads requests and writes responses, and a client does the opposite. May import ``core`` and
the modules of ``wire`` itself. Start with ``schemas``, the only module that imports kio, then
``schema_codec``. ``request_reader`` reads requests without trusting the lengths that they claim.
"""
