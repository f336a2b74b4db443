"""Access to Kafka's schemas and error codes in kio. No other module imports kio.

kio and its dependencies are half of an idle broker's memory and most of its start-up time, so the first call
that needs kio imports it. If hypothesis is installed, kio imports that too, for the sake of tests, which
costs every command that speaks the protocol a second. This module prevents that.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode


def load_request_schema(api_key: int, version: int) -> Any:
    _load_kio()
    from kio.index import load_request_schema

    return load_request_schema(api_key, version)


def load_response_schema(api_key: int, version: int) -> Any:
    _load_kio()
    from kio.index import load_response_schema

    return load_response_schema(api_key, version)


def entity_reader(schema: Any) -> Any:
    """kio's own parser of a schema."""
    _load_kio()
    from kio.serial import entity_reader

    return entity_reader(schema)


@cache
def error_codes() -> type[ErrorCode]:
    _load_kio()
    from kio.schema.errors import ErrorCode

    return ErrorCode


@cache
def _load_kio() -> None:
    if "hypothesis" in sys.modules:
        return  # it is already imported, or already blocked
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.serial
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
