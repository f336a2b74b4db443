"""Schemas and their registry: what records are made of, kept where everyone who reads them finds it.

The registry speaks the HTTP interface of Confluent's, keeps everything in one compacted topic in Confluent's
own record format, and knows its broker by an address alone: it runs beside ours or Apache Kafka.

    parsing, rules    schema | avro | avro_resolution | json_schema | json_diff | protobuf | protobuf_diff
    state             store (the topic's records as a table) | registrar (what a request may change)
    I/O               keeper (the topic: reading, and writing as one of several) | server (HTTP)
    its clients       client (HTTP) | framing and values (a record's bytes and back)

What parses, compares and decides does no I/O. May import: ``client``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from millstream.extras import extra

_EXTRAS = ("starlette", "uvicorn", "fastavro", "jsonschema", "google", "grpc_tools")


def needs_extra() -> AbstractContextManager[None]:
    """Says what to install where an import within fails because it is not there."""
    return extra("registry", _EXTRAS, "schemas need")
