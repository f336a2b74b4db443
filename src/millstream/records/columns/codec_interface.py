"""The common interface of both record column modules: ``compiled`` and ``with_numpy``.

Each has two parts. ``decode`` reads batches whose uncompressed bodies are in one buffer, described by rows of
``SPAN`` numbers::

    0 start of the records in the buffer     4 base timestamp
    1 their end                              5 time of arrival, NO_APPEND_TIME if it is the producer's
    2 base offset                            6 record count, checked against the size
    3 last offset delta                      7 position of the batch, for error messages

``Encoder`` writes rows as records, in any order and grouping. The same tests compare both with the plain
reader and builder in ``build``.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

SPAN = 8
NO_APPEND_TIME = -(2**63)

# Arrow counts microseconds in 64 bits. A millisecond time beyond that (no clock is) is clamped.
MAX_MS = (2**63 - 1) // 1000
MIN_MS = -MAX_MS

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")


class Columns(NamedTuple):
    """Decoded records by column; columns that were not requested are None."""

    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None
    offset: pa.Array
    timestamp: pa.Array
    timestamp_type: pa.Array


def header_keys(keys: pa.Array) -> pa.Array:
    """Header keys as text. Bytes that are not UTF-8 become replacement characters, as in Java's reader."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
