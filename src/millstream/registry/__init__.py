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

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import ConfigError

_EXTRAS = ("starlette", "uvicorn", "fastavro", "jsonschema", "google", "grpc_tools")


@contextmanager
def needs_extra() -> Iterator[None]:
    """Says what to install where an import within fails because it is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRAS:
            raise
        raise ConfigError(
            f"schemas need {error.name}, which is not installed: pip install 'millstream[registry]'"
        ) from None
