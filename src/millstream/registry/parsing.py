"""Parse a schema of any type. Only the type that is needed is loaded: each has a library of its own."""

from __future__ import annotations

from functools import lru_cache

from millstream.core.errors import InvalidSchema, RegistryRefused
from millstream.registry.schema import AVRO, JSON, MAX_DEPTH, TYPES, ParsedSchema

# A schema is one record of the registry's topic, and a broker accepts a megabyte.
MAX_BYTES = 950_000
_TOO_LARGE = 42209


def parse(type: str, text: str, dependencies: tuple[tuple[str, str], ...] = ()) -> ParsedSchema:
    """Parse a schema. ``dependencies`` are the names and texts of the schemas that it refers to.

    Raises InvalidSchema, or RegistryRefused if it is too large.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise RegistryRefused(_TOO_LARGE, f"the schema has {size:,} bytes; at most {MAX_BYTES:,} are allowed")
    if type not in TYPES:
        raise InvalidSchema(f"schema type {type!r} is not one of {', '.join(TYPES)}")
    try:
        return _parse(type, text, dependencies)
    except RecursionError:
        raise InvalidSchema(f"the schema is nested more than {MAX_DEPTH} levels deep") from None


# Compatibility checks parse the same few versions again and again.
@lru_cache(maxsize=1000)
def _parse(type: str, text: str, dependencies: tuple[tuple[str, str], ...]) -> ParsedSchema:
    if type == AVRO:
        from millstream.registry.avro.schema import AvroSchema

        return AvroSchema(text, dependencies)
    if type == JSON:
        from millstream.registry.json.schema import JsonSchema

        return JsonSchema(text, dependencies)
    from millstream.registry.protobuf.schema import ProtobufSchema

    return ProtobufSchema(text, dependencies)
