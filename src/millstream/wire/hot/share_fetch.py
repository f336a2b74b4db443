"""The response to ShareFetch, versions 1 and 2, written by hand: records may stay in their file.

    response  throttle time int32 | error int16 | error message | acquisition lock timeout int32 | topics
              | node endpoints
    topic     id uuid | partitions
    partition index int32 | error int16 | error message | acknowledge error int16 | acknowledge error message
              | current leader (id int32, epoch int32) | records | acquired records
    acquired  first offset int64 | last offset int64 | delivery count int16

Strings and arrays are compact, and every structure ends with tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from millstream.wire.frame import compact_bytes, unsigned_varint
from millstream.wire.hot.fetch import INLINED, LARGE, Part, StoredRecords, whole

_HEAD = Struct(">ih")
_LOCK = Struct(">i")
_PARTITION = Struct(">ih")
_CODE = Struct(">h")
_NO_LEADER = Struct(">iib").pack(-1, -1, 0)
_ACQUIRED = Struct(">qqhb")


class ShareFetched(NamedTuple):
    """The result for one partition. Messages are None where there is no error."""

    partition: int
    error: int = 0
    message: str | None = None
    acknowledge_error: int = 0
    acknowledge_message: str | None = None
    records: StoredRecords | None = None
    acquired: Sequence[tuple[int, int, int]] = ()  # first and last offset, delivery count


def share_fetch_answer(
    error: int, message: str | None, lock_ms: int, topics: Mapping[bytes, Iterable[ShareFetched]]
) -> list[Part]:
    """The body of a response, in parts, with the partitions by topic id."""
    out = bytearray(_HEAD.pack(0, error) + _string(message) + _LOCK.pack(lock_ms))
    out += unsigned_varint(len(topics) + 1)
    parts: list[Part] = []
    inlined = 0
    for topic_id, partitions in topics.items():
        listed = list(partitions)
        out += topic_id + unsigned_varint(len(listed) + 1)
        for fetched in listed:
            out += _PARTITION.pack(fetched.partition, fetched.error) + _string(fetched.message)
            out += _CODE.pack(fetched.acknowledge_error) + _string(fetched.acknowledge_message) + _NO_LEADER
            records = fetched.records
            size = records.size if records is not None else 0
            out += unsigned_varint(size + 1)
            if records is not None and size:
                inlined += size
                if size > LARGE or inlined > INLINED:
                    parts += (out, records)
                    out = bytearray()
                else:
                    out += whole(records)
            out += unsigned_varint(len(fetched.acquired) + 1)
            for first, last, count in fetched.acquired:
                out += _ACQUIRED.pack(first, last, count, 0)
            out.append(0)
        out.append(0)
    out += b"\x01\x00"  # no node endpoints, no tags
    parts.append(out)
    return parts


def _string(text: str | None) -> bytes:
    return b"\0" if text is None else compact_bytes(text.encode())
