"""Batches with a valid header and checksum whose records can't be read, or don't match the header."""

from __future__ import annotations

import struct
from collections.abc import Callable

from millstream.records.batch import HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, seal
from millstream.records.build import Record, assemble, build_batch
from millstream.records.compression import compress

NOW = 1_700_000_000_000
_COUNT_AT, _LAST_DELTA_AT = 57, 23
RECORDS = [Record(b"k", b"value %d" % number, (("h", b"1"),), timestamp=NOW + number) for number in range(3)]
PLAIN = bytes(build_batch(RECORDS)[HEADER_SIZE:])


def batch_of(body: bytes, count: int = 3, codec: int = 0, max_timestamp: int = NOW + 2) -> bytes:
    """A batch of these bytes, whose header claims ``count`` records."""
    packed = bytes(compress(codec, body))
    return bytes(
        assemble(
            packed,
            attributes=codec,
            base_offset=0,
            leader_epoch=-1,
            last_offset_delta=count - 1,
            base_timestamp=NOW,
            max_timestamp=max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=NO_SEQUENCE,
            record_count=count,
        )
    )


def _changed(change: Callable[[bytearray], None]) -> bytes:
    body = bytearray(PLAIN)
    change(body)
    return bytes(body)


def _first_record(at: int, value: int) -> bytes:
    """The records, with one byte of the first changed: the one at ``at`` after its length."""
    return _changed(lambda body: body.__setitem__(1 + at, value))


# The bytes of the records, and how many records the header claims.
BODIES: dict[str, tuple[bytes, int]] = {
    "garbage": (bytes(range(7, 107)), 3),
    "zeros": (bytes(100), 3),
    "no bytes": (b"", 3),
    "one record more than there are": (PLAIN, 4),
    "one record fewer than there are": (PLAIN, 2),
    "cut off in a record": (PLAIN[:-4], 3),
    "bytes after the records": (PLAIN + b"\0\0", 3),
    "a record that is too long": (_changed(lambda body: body.__setitem__(0, 0x7E)), 3),
    "a record of negative length": (_changed(lambda body: body.__setitem__(0, 0x01)), 3),
    "a key that is too long": (_first_record(3, 0x7E), 3),
    "a value that is too long": (_first_record(5, 0x7E), 3),
    "a value that is too short": (_first_record(5, 0x02), 3),
    "more headers than bytes": (_first_record(13, 0x7E), 3),
    "a negative number of headers": (_first_record(13, 0x03), 3),
    "a header without a key": (_first_record(14, 0x01), 3),
}


def with_codec_but_not_compressed(codec: int) -> bytes:
    """A batch whose header claims compression, while its records are not compressed."""
    batch = bytearray(batch_of(PLAIN))
    struct.pack_into(">h", batch, 21, codec)
    seal(batch, 0, len(batch))
    return bytes(batch)


def offsets(*deltas: int, codec: int = 0) -> bytes:
    """A batch whose records have these offset deltas instead of 0, 1, 2."""
    body = bytearray(PLAIN)
    size = len(body) // 3
    for number, delta in enumerate(deltas):
        body[number * size + 3] = delta << 1
    return batch_of(bytes(body), codec=codec)
