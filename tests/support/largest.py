"""Builds the largest legal requests of every kind, by filling each array that a request can have."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import millstream.broker.api  # noqa: F401  (registers the handlers)
from millstream.broker.api.handlers import HANDLERS
from millstream.wire.api_keys import PRIVATE
from millstream.wire.codec.schema_codec import load_request_schema
from millstream.wire.codec.type_hints import shape_of
from tests.support.wire_client import request

Path = tuple[str, ...]


def kinds() -> Iterator[tuple[int, Path]]:
    """Every request with an array: its key, and the names of fields that lead to the array."""
    for api_key, served in sorted(HANDLERS.items()):
        if api_key not in PRIVATE:
            for path in _arrays(load_request_schema(api_key, served.last)):
                yield api_key, path


def largest(api_key: int, path: Path, elements: int) -> bytes:
    """A whole request with the given number of elements in one array, and one element in each array on the
    way to it. Names on the way are "t", like the topic; the elements of the array are named by number.
    """
    version = HANDLERS[api_key].last
    return request(api_key, version, 1, **_filled(load_request_schema(api_key, version), path, -1, elements))


def _arrays(entity: Any) -> Iterator[Path]:
    hints = typing.get_type_hints(entity)
    for declared in dataclasses.fields(entity):
        hint, _, is_array = shape_of(hints[declared.name])
        if "tag" in declared.metadata or not is_array:
            continue
        yield (declared.name,)
        if dataclasses.is_dataclass(hint):
            for path in _arrays(hint):
                yield (declared.name, *path)


def _filled(entity: Any, path: Path, number: int, elements: int) -> dict[str, Any]:
    hints = typing.get_type_hints(entity)
    fields: dict[str, Any] = {}
    for declared in dataclasses.fields(entity):
        hint, _, is_array = shape_of(hints[declared.name])
        name, kind = declared.name, declared.metadata.get("kafka_type", "")
        if is_array and path and name == path[0]:
            count = elements if len(path) == 1 else 1
            fields[name] = [_element(hint, kind, path[1:], n, count, elements) for n in range(count)]
        elif not is_array and kind == "string" and "tag" not in declared.metadata:
            fields[name] = "t" if number < 0 else f"t{number}"
        elif not is_array and number >= 0 and ("partition" in name or "index" in name):
            fields[name] = number
        elif name in _CHOSEN:
            fields[name] = _CHOSEN[name]
    return fields


_CHOSEN = {
    "acks": 1,
    "allow_auto_topic_creation": False,
    "max_bytes": 1 << 20,
    "producer_id": 2,
    "replication_factor": -1,
    "resource_type": 2,
    "session_epoch": -1,
    "validate_only": True,
}


def _element(hint: Any, kind: str, path: Path, number: int, count: int, elements: int) -> Any:
    if dataclasses.is_dataclass(hint):
        return _filled(hint, path, number if count > 1 else -1, elements)
    return f"t{number}" if kind == "string" else None if kind == "uuid" else number % 100
