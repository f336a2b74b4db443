"""A record as the console shows it, and the query that selects records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from millstream.client.insight.peek import PeekedBatch, Record, State
from millstream.console.messages.decoding import LONG, SHORT, Decoding, Format, Meant, ShownValue, shown
from millstream.console.messages.expression import Expression, parse

PER_PAGE = 50
MOST = 500
LARGEST_OFFSET = 2**53 - 1  # JSON numbers are exact up to here: 285 years of a million records a second
Seek = Literal["newest", "oldest", "offset", "time", "live"]


@dataclass(frozen=True, slots=True)
class ShownHeader:
    name: str
    value: ShownValue


@dataclass(frozen=True, slots=True)
class Message:
    """A record. ``state`` is that of its transaction, ``plain`` if it was in none. A marker is not a record
    but the end of a transaction. ``bytes`` is the uncompressed size of key, value and headers.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    leader_epoch: int
    state: State
    bytes: int
    key: ShownValue
    value: ShownValue
    headers: list[ShownHeader]


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which records are requested. ``seek`` says where to begin, and so the order: ``newest`` and ``live`` go
    backwards from the newest record (``live`` then follows new ones), ``oldest``, ``offset`` and ``time`` go
    forwards. ``key``, ``value`` and ``header`` are texts that must be in the record (``name=text`` for a
    header's value), and ``where`` is an expression. ``cursor`` continues where another page ended.
    """

    seek: Seek = "newest"
    offset: Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)] = 0
    time: str = ""
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    key: str = ""
    value: str = ""
    header: str = ""
    where: str = ""
    format: Format = "auto"
    committed: bool = True
    limit: Annotated[int, Meta(ge=1, le=MOST)] = PER_PAGE
    cursor: str = ""

    @property
    def backwards(self) -> bool:
        return self.seek in ("newest", "live")

    @property
    def filters(self) -> bool:
        return bool(self.key or self.value or self.header or self.where)

    def parameters(self, **changed: str | int) -> dict[str, str | int]:
        """The query parameters of a link: all fields that differ from their defaults."""
        plain = MessageQuery()
        named: dict[str, str | int] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value != getattr(plain, name) and value is not None:
                named[name] = str(value).lower() if isinstance(value, bool) else value
        if self.seek != "offset":
            named.pop("offset", None)
        if self.seek != "time":
            named.pop("time", None)
        return {name: value for name, value in (named | changed).items() if value != ""}


def not_decoded(messages: Sequence[Message]) -> list[tuple[str, int]]:
    """The reasons why values are not in the requested format, with their counts, most frequent first."""
    return Counter(each.value.note for each in messages if each.value.note).most_common()


class Filter:
    """Decides whether a record matches a query. Raises ExpressionError if the expression is not valid."""

    def __init__(self, query: MessageQuery, decoding: Decoding) -> None:
        self._decoding = decoding
        self._key = query.key.encode()
        self._value = query.value
        name, equals, text = query.header.partition("=")
        self._header = name.strip()
        self._header_text = text.strip().encode() if equals else None
        self._where: Expression | None = parse(query.where) if query.where.strip() else None

    def accepts(self, partition: int, record: Record) -> bool:
        if self._key and self._key not in (record.key or b""):
            return False
        if self._header and not any(self._is_header(*header) for header in record.headers):
            return False
        if not self._value and self._where is None:
            return True
        if self._value and self._value.encode() not in (record.value or b"") and not self._is_within(record):
            return False
        return self._where is None or self._where.matches(self._parts(partition, record, self._where.uses))

    def _is_header(self, name: str, data: bytes | None) -> bool:
        if name != self._header:
            return False
        return self._header_text is None or self._header_text in (data or b"")

    def _is_within(self, record: Record) -> bool:
        """True if the value is encoded by a schema and contains the text once it is decoded."""
        meant = self._decoding.meant(record.value)
        return meant.schema_id is not None and self._value in shown(meant, LONG).text

    def _parts(self, partition: int, record: Record, uses: frozenset[str]) -> Mapping[str, Any]:
        """The parts of a record that an expression uses. Other parts are not decoded."""
        parts: dict[str, Any] = {
            "offset": record.offset,
            "partition": partition,
            "timestamp": record.timestamp,
            "size": size_of(record),
        }
        if "value" in uses:
            parts["value"] = _plain(self._decoding.meant(record.value))
        if "key" in uses:
            parts["key"] = _plain(self._decoding.meant(record.key))
        if "header" in uses:
            parts["header"] = {name: _plain(Meant("text", data)) for name, data in record.headers}
        return parts


def _plain(meant: Meant) -> Any:
    """The value that expressions compare: of a JSON type, or a text."""
    if meant.structured or meant.data is None:
        return meant.value
    return meant.data.decode("utf-8", "replace")


def size_of(record: Record) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name.encode()) + len(data or b"") for name, data in record.headers)
    )


def message(
    partition: int,
    batch: PeekedBatch,
    record: Record,
    decoding: Decoding,
    *,
    most: int = SHORT,
    pretty: bool = False,
) -> Message:
    """A record in the form that is shown."""

    def part(data: bytes | None) -> ShownValue:
        return shown(decoding.meant(data), most, pretty=pretty)

    if batch.state in ("commit marker", "abort marker"):
        # The content of a marker is internal to Kafka, and ``state`` says the same.
        record = Record(None, None, (), record.timestamp, record.offset)
    texts = Decoding()
    return Message(
        partition,
        record.offset,
        record.timestamp if record.timestamp >= 0 else None,
        "LogAppendTime" if batch.log_append_time else "CreateTime",
        batch.leader_epoch,
        batch.state,
        size_of(record),
        part(record.key),
        part(record.value),
        [ShownHeader(name, shown(texts.meant(data), most)) for name, data in record.headers],
    )
