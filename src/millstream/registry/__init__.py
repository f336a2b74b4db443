"""Schemas of records, and a registry that stores them. The registry speaks the HTTP interface of
Confluent's registry and keeps everything in one compacted topic, in Confluent's record format. It knows its
broker by an address alone, so it works on Apache Kafka too. It may import ``client`` and ``core``;
``pipeline``, ``console``, ``cli`` and the pytest plugin may import it. Parsing, comparing and deciding do
no I/O. Start reading at ``schema`` (what Avro, JSON and Protobuf schemas have in common; each has a room,
with a module to parse it and one to compare it), ``parsing`` (from a text to a schema) and ``service`` (the
topic as a table, what a request may change, HTTP). For programs that use a registry there are ``client``
(HTTP), and ``framing`` and ``values`` (a record's bytes and back).
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from millstream.core.extras import extra

_EXTRAS = ("starlette", "uvicorn", "fastavro", "jsonschema", "google", "grpc_tools")


def needs_extra() -> AbstractContextManager[None]:
    """A context in which a failed import of a package of the extra says what to install."""
    return extra("registry", _EXTRAS, "schemas need")
