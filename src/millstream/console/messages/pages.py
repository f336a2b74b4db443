"""The records of a topic: searched, followed live, and each on a page of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import MediaType, Request, Response, get
from litestar.di import NamedDependency, Provide
from litestar.exceptions import ValidationException
from litestar.params import FromPath, FromQuery, PathParameter, QueryParameter
from litestar.response import Stream

from millstream.client.insight.peek import Peek, PeekedBatch, Record
from millstream.client.text.position import TopicPartition
from millstream.console.backend import Backend
from millstream.console.live.leaving import HasEnded
from millstream.console.live.tails import MOST as MOST_TAILS
from millstream.console.live.tails import TailSlot
from millstream.console.messages.decoding import LONG, WHOLE, Decoding, Format
from millstream.console.messages.expression import LONGEST
from millstream.console.messages.message import (
    LARGEST_OFFSET,
    MOST,
    PER_PAGE,
    Message,
    MessageQuery,
    Seek,
    message,
    not_decoded,
)
from millstream.console.messages.search import (
    CURSOR,
    Arrived,
    MessagePage,
    chosen,
    follow,
    parse_cursor,
    search,
)
from millstream.console.observing.snapshot import Snapshot
from millstream.console.topics.topic_pages import header, header_fragments, seen
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError, RequestFailed
from millstream.core.kafka_errors import CORRUPT_MESSAGE

_OFFSET_OUT_OF_RANGE = 1
_ONE_BYTES = 64 * 1024  # to fetch for one record; a larger batch is still fetched whole
T = TypeVar("T")
Partition = Annotated[int, PathParameter(ge=0, le=2**31 - 1)]
Offset = Annotated[int, PathParameter(ge=0, le=LARGEST_OFFSET)]


# The query -------------------------------------------------------------------------------------------


async def asked(
    seek: Annotated[
        Seek, QueryParameter(description="Where to begin: newest goes backwards, the others forwards.")
    ] = "newest",
    offset: Annotated[int, QueryParameter(ge=0, le=LARGEST_OFFSET, description="With seek=offset.")] = 0,
    time: Annotated[
        str,
        QueryParameter(
            max_length=40, description="With seek=time: 2026-01-01T10:30Z, -1h, or milliseconds since 1970."
        ),
    ] = "",
    partition: Annotated[int | None, QueryParameter(ge=0, le=2**31 - 1, description="Only this one.")] = None,
    key: Annotated[str, QueryParameter(max_length=1000, description="A text within the key.")] = "",
    value: Annotated[str, QueryParameter(max_length=1000, description="A text within the value.")] = "",
    header: Annotated[
        str, QueryParameter(max_length=1000, description="A header's name, or name=text within its value.")
    ] = "",
    where: Annotated[
        str, QueryParameter(max_length=LONGEST, description="An expression such as `$.user.id = 7`.")
    ] = "",
    format: Annotated[
        Format, QueryParameter(description="How keys and values are decoded; auto looks.")
    ] = "auto",
    committed: Annotated[
        bool, QueryParameter(description="Not what transactions have aborted, or not committed yet.")
    ] = True,
    limit: Annotated[int, QueryParameter(ge=1, le=MOST, description="Records on a page.")] = PER_PAGE,
    cursor: Annotated[
        str, QueryParameter(pattern=rf"^({CURSOR})?$", max_length=30_000, description="`next` of a page.")
    ] = "",
) -> MessageQuery:
    return MessageQuery(
        seek, offset, time, partition, key, value, header, where, format, committed, limit, cursor
    )


def typed(request: Request[Any, Any, Any]) -> MessageQuery:
    """The query of a form, which sends every field, including empty ones."""
    known = MessageQuery.__dataclass_fields__
    given = {name: text for name, text in request.query_params.items() if name in known and text != ""}
    try:
        return msgspec.convert(given, MessageQuery, strict=False)
    except msgspec.ValidationError as error:
        raise ValidationException(str(error)) from None


# Looking ---------------------------------------------------------------------------------------------


async def find_messages(
    request: Request[Any, Any, Any], backend: Backend, name: str, query: MessageQuery
) -> MessagePage:
    def work(ended: HasEnded) -> MessagePage:
        with Peek(backend.asking, committed=query.committed) as log:
            decoding = Decoding(query.format, backend.schemas)
            return search(log, name, query, decoding, now_ms=SystemClock().now_ms(), ended=ended)

    return await backend.look_for(request, work)


@get("/topics/{name:str}", include_in_schema=False)
async def page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    done: FromQuery[str] = "",
) -> Response[str]:
    snapshot = await seen(backend, name)
    query, problem, shown = MessageQuery(), "", None
    try:
        query = typed(request)
        shown = await find_messages(request, backend, name, query)
    except (ConfigError, ValidationException) as error:
        problem = error.detail if isinstance(error, ValidationException) else str(error)
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_messages.html",
        status=400 if problem else 200,
        follow={"from": shown.ends} if shown is not None and query.seek == "live" else None,
        query=query,
        page=shown,
        problem=problem,
        done=done,
        not_decoded=not_decoded(shown.messages) if shown is not None else [],
        has_registry=backend.schemas is not None,
        **header(backend, snapshot, name),
    )


@get(
    "/api/topics/{name:str}/messages",
    tags=["messages"],
    summary="A topic's records, as far as one look goes; `next` continues",
    dependencies={"wanted": Provide(asked)},
)
async def listed(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    wanted: NamedDependency[MessageQuery],
) -> MessagePage:
    await seen(backend, name)
    return await find_messages(request, backend, name, wanted)


# Following -------------------------------------------------------------------------------------------


@get("/live/topics/{name:str}", include_in_schema=False)
async def live(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Stream:
    query = typed(request)
    if query.seek != "live":
        return backend.live(lambda snapshot: header_fragments(backend, snapshot, name))
    started = request.query_params.get("from", "")
    offsets = parse_cursor(started) if started else {}

    async def fragments(seat: TailSlot, snapshot: Snapshot) -> dict[str, str]:
        nonlocal offsets
        changed = header_fragments(backend, snapshot, name)
        changed["line"] = backend.fragment("tail_line.html", waits=not seat.take(), most=MOST_TAILS)
        if not seat.taken:
            return changed
        places = [place for place in snapshot.ends if place.topic == name]
        ends = {place.partition: snapshot.ends[place] for place in places}
        if query.partition is not None:
            ends = {partition: end for partition, end in ends.items() if partition == query.partition}
        grown = {partition: end for partition, end in ends.items() if end > offsets.get(partition, 0)}
        if not grown:
            return changed

        def work() -> Arrived:
            with Peek(backend.asking, committed=query.committed) as log:
                # With ``committed``, these ends are the last stable offsets: what is not committed yet is
                # shown once it is.
                bounds = log.bounds([TopicPartition(name, partition) for partition in grown])
                reached = {place.partition: bounds[place].end for place in bounds}
                decoding = Decoding(query.format, backend.schemas)
                return follow(log, name, query, decoding, offsets, reached)

        arrived = await backend.tails.run(work)
        offsets = {**offsets, **arrived.offsets}
        if arrived.messages or arrived.skipped:
            changed["rows"] = backend.fragment(
                "messages_rows.html",
                messages=arrived.messages,
                skipped=arrived.skipped,
                topic_name=name,
                query=query,
            )
        return changed

    return backend.tail(fragments)


# One record ------------------------------------------------------------------------------------------


async def one(
    backend: Backend,
    name: str,
    partition: int,
    offset: int,
    shown: Callable[[PeekedBatch, Record], T],
) -> T:
    """The result of ``shown`` for one record, whether its transaction was committed, aborted or is open.
    Raises RequestFailed if there is no record. ``shown`` runs on the same thread, because it may query a
    schema registry.
    """

    def work() -> T:
        with Peek(backend.asking, committed=False) as log:
            (place,) = chosen(log.partitions(name), partition)
            stretch = log.stretch(place, offset, offset + 1, _ONE_BYTES)
            for batch in stretch.batches:
                return shown(batch, batch.records[0])
            if stretch.unreadable is not None:
                raise RequestFailed(CORRUPT_MESSAGE, "CORRUPT_MESSAGE", str(stretch.unreadable))
            start, end = log.bounds([place])[place]
            why = "it was deleted, or compacted" if offset < end else "it is not written yet"
            raise RequestFailed(
                _OFFSET_OUT_OF_RANGE,
                "OFFSET_OUT_OF_RANGE",
                f"there is no record at offset {offset} of {place}: {why}; the log has {start} to {end}",
            )

    return await backend.run(work)


async def _decoded(
    backend: Backend, name: str, partition: int, offset: int, format_: Format, most: int
) -> Message:
    decoding = Decoding(format_, backend.schemas)

    def shown(batch: PeekedBatch, record: Record) -> Message:
        return message(partition, batch, record, decoding, most=most, pretty=True)

    return await one(backend, name, partition, offset, shown)


@get("/topics/{name:str}/messages/{partition:int}/{offset:int}", include_in_schema=False)
async def one_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    partition: Partition,
    offset: Offset,
    format: FromQuery[Format] = "auto",
    all: FromQuery[bool] = False,
    part: FromQuery[bool] = False,
    done: FromQuery[str] = "",
) -> Response[str]:
    """The page of a record; with ``part``, only the part that unfolds within the list."""
    snapshot = await seen(backend, name)
    shown = await _decoded(backend, name, partition, offset, format, WHOLE if all else LONG)
    values: dict[str, Any] = {"message": shown, "format": format, "all": all, "whole": WHOLE}
    if part:
        html = backend.fragment("message_body.html", topic_name=name, standalone=False, **values)
        return Response(html, media_type=MediaType.HTML, headers={"Cache-Control": "no-store"})
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_message.html",
        standalone=True,
        topic_name=name,
        end=snapshot.ends.get(TopicPartition(name, partition)),
        done=done,
        **values,
        **header(backend, snapshot, name),
    )


@get("/live/topics/{name:str}/messages/{partition:int}/{offset:int}", include_in_schema=False)
async def one_live(
    backend: NamedDependency[Backend], name: FromPath[str], partition: Partition, offset: Offset
) -> Stream:
    return backend.live(lambda snapshot: header_fragments(backend, snapshot, name))


@get(
    "/api/topics/{name:str}/messages/{partition:int}/{offset:int}",
    tags=["messages"],
    summary="One record",
)
async def one_told(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    partition: Partition,
    offset: Offset,
    format: FromQuery[Format] = "auto",
) -> Message:
    await seen(backend, name)
    return await _decoded(backend, name, partition, offset, format, WHOLE)


@get(
    "/api/topics/{name:str}/messages/{partition:int}/{offset:int}/value",
    tags=["messages"],
    summary="A record's value, byte by byte",
    media_type="application/octet-stream",
)
async def value(
    backend: NamedDependency[Backend], name: FromPath[str], partition: Partition, offset: Offset
) -> Response[bytes]:
    await seen(backend, name)
    content = await one(backend, name, partition, offset, lambda _, record: record.value or b"")
    disposition = f'attachment; filename="{name}-{partition}-{offset}"'
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"Content-Disposition": disposition},
    )


HANDLERS = (page, listed, live, one_page, one_live, one_told, value)
