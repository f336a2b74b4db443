"""Checks a batch's records against its header if there is no compiler: the same as ``_check``."""

from __future__ import annotations

from array import array

from millstream.records.batch import NO_TIMESTAMP, Buffer

(FINE, NUMBER, RECORD, FIELD, HEADERS, HEADER_KEY, LEFT_OVER, OFFSET, TIME,
 FEWER, MORE, NO_KEY, OUT_OF_TIME, MAX_TIME) = range(14)  # fmt: skip
_ROWS = 2
_INT64 = 2**63


class _Fault(Exception):
    def __init__(self, fault: int) -> None:
        self.fault = fault


def check(
    records: Buffer,
    start: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    oldest: int,
    newest: int,
    keys: bool,
    details: array[int] | None = None,
) -> int:
    body = memoryview(records)
    at, stop = start, len(body)
    latest, noted, refused, row = -_INT64, 0, FINE, 0
    try:
        for row in range(count):
            if at >= stop:
                return _at(FEWER, row, details)
            length, at = _number(body, at, stop)
            if not 0 < length <= stop - at:
                return _at(RECORD, row, details)
            end = at + length
            delta, at = _number(body, at + 1, end, 64)
            timestamp = base_timestamp + delta
            if not -_INT64 <= timestamp < _INT64:
                return _at(TIME, row, details)
            delta, at = _number(body, at, end)
            if delta != row:
                return _at(OFFSET, row, details)
            key_length, at = _field(body, at, end)
            _, at = _field(body, at, end)
            at = _headers_end(body, at, end)
            if at != end:
                return _at(LEFT_OVER, row, details)
            latest = max(latest, timestamp)
            why = FINE
            if key_length < 0 and keys:
                why = NO_KEY
            elif not oldest <= timestamp <= newest and timestamp != NO_TIMESTAMP:
                why = OUT_OF_TIME
            if why != FINE:
                if details is None:
                    return why
                if refused < why:
                    refused, noted = why, 0
                if why == refused and _ROWS + noted < len(details):
                    details[_ROWS + noted] = row
                    noted += 1
    except _Fault as found:
        return _at(found.fault, row, details)
    if at != stop:
        return _at(MORE, count - 1, details)
    if details is not None:
        details[0], details[1] = noted, latest
    if refused != FINE:
        return refused
    return FINE if latest == max_timestamp else MAX_TIME


def _at(fault: int, row: int, details: array[int] | None) -> int:
    if details is not None:
        details[0] = row
    return fault


def _number(body: memoryview, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift <= bits:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise _Fault(NUMBER)


def _field(body: memoryview, at: int, end: int) -> tuple[int, int]:
    length, at = _number(body, at, end)
    if not -1 <= length <= end - at:
        raise _Fault(FIELD)
    return length, at + max(length, 0)


def _headers_end(body: memoryview, at: int, end: int) -> int:
    left, at = _number(body, at, end)
    if not 0 <= left <= end - at:
        raise _Fault(HEADERS)
    for _ in range(left):
        length, at = _field(body, at, end)
        if length < 0:
            raise _Fault(HEADER_KEY)
        _, at = _field(body, at, end)
    return at
