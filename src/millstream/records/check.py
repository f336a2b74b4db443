"""Checks a batch's records against its header, before a broker appends the batch.

``check(records, start, count, base_timestamp, max_timestamp, oldest, newest, keys, details)`` reads the
uncompressed records in ``records[start:]`` and returns ``FINE``, or the first fault that it finds:

- a record, number, field or header that does not end where it should, or offsets that are not 0 to
  ``count - 1``: no reader can read such a batch;
- ``FEWER`` or ``MORE`` records than ``count``;
- ``NO_KEY``, if ``keys`` are required;
- ``OUT_OF_TIME``: a timestamp before ``oldest`` or after ``newest``;
- ``MAX_TIME``: all is well, but ``max_timestamp`` is not the largest timestamp.

``details``, an array of 64-bit numbers, is for a second call that finds out more. If a record can't be read,
``details[0]`` is its number. Otherwise records refused for their contents are skipped: ``details[0]`` is how
many were noted (those out of time if there are any, otherwise those without a key), their numbers follow
from ``details[2]`` on, and ``details[1]`` is the largest timestamp.

Compiled if there was a compiler, otherwise in plain Python, which takes some microseconds per record. The
tests compare the two.
"""

from __future__ import annotations

from contextlib import suppress

from millstream.records.plain_check import (
    FEWER,
    FIELD,
    FINE,
    HEADER_KEY,
    HEADERS,
    LEFT_OVER,
    MAX_TIME,
    MORE,
    NO_KEY,
    NUMBER,
    OFFSET,
    OUT_OF_TIME,
    RECORD,
    TIME,
    check,
)

with suppress(ImportError):
    from millstream.records._check import check  # type: ignore[import-not-found, no-redef]

__all__ = ["FINE", "MAX_TIME", "NO_KEY", "OUT_OF_TIME", "REASONS", "check"]

# Why a batch can't be read, by fault.
REASONS = {
    NUMBER: "a number that does not end, or is too large",
    RECORD: "a record that is longer than what is left",
    FIELD: "a field that is longer than its record",
    HEADERS: "more headers than the record can hold",
    HEADER_KEY: "a header without a key",
    LEFT_OVER: "bytes left over in a record",
    OFFSET: "an offset that is not the record's number in the batch",
    TIME: "a timestamp beyond 64 bits",
    FEWER: "fewer records than the batch counts",
    MORE: "bytes after the last record",
}
