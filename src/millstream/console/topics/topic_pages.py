"""One topic: the header of its pages, its partitions, its consumers and its settings.

``messages`` has the pages of its records, and ``change_pages`` the forms that change it.
"""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from millstream.client.protocol.topic_settings import topic_settings
from millstream.console.backend import Backend
from millstream.console.observing.history import Columns
from millstream.console.observing.snapshot import Snapshot, TopicState
from millstream.console.topics.settings import TopicSettings, settings_shown
from millstream.console.topics.topic import (
    Consumer,
    PartitionState,
    TopicLoss,
    consumers_of,
    loss_of,
    partitions_of,
    rate_of,
)

Searched = Annotated[str, QueryParameter(max_length=300, description="Words in a setting's name or meaning.")]


async def seen(backend: Backend, name: str) -> Snapshot:
    """A snapshot that has the topic. If there is none, raises RequestFailed with the nearest names."""
    snapshot = await backend.sampler.first()
    if name not in snapshot.topics:  # it may have been created after the last look
        snapshot = await backend.sampler.look_now()
    if name not in snapshot.topics:
        raise await backend.ask(lambda admin: admin.unknown_topic(name))
    return snapshot


def header(backend: Backend, snapshot: Snapshot, name: str) -> dict[str, Any]:
    """The values that every page of a topic shows."""
    return {
        "topic": snapshot.topics[name],
        "detailed": snapshot.detailed,
        "at_ms": snapshot.at_ms,
        "point": _point(backend, snapshot, name),
        "readers": len(consumers_of(snapshot, name)),
    }


def header_fragments(backend: Backend, snapshot: Snapshot, name: str) -> dict[str, str]:
    if name not in snapshot.topics:
        return {"figures": backend.fragment("topic_gone.html", name=name)}
    point = _point(backend, snapshot, name)
    return {
        "figures": backend.fragment("topic_figures.html", **header(backend, snapshot, name)),
        "point": backend.fragment("chart_point.html", chart="rate", point=point),
    }


def _point(backend: Backend, snapshot: Snapshot, name: str) -> list[float | None]:
    """The newest point of the chart, its time first."""
    last = backend.sampler.observer.topics.last(name)
    return [last[0], last[1] or 0.0] if last else []


# Partitions ------------------------------------------------------------------------------------------


@get("/topics/{name:str}/partitions", include_in_schema=False)
async def partitions_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    done: FromQuery[str] = "",
) -> Response[str]:
    snapshot = await seen(backend, name)
    return partitions_shown(request, backend, snapshot, name, done=done)


def partitions_shown(
    request: Request[Any, Any, Any],
    backend: Backend,
    snapshot: Snapshot,
    name: str,
    *,
    status: int = 200,
    problem: str = "",
    done: str = "",
) -> Response[str]:
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_partitions.html",
        status=status,
        partitions=partitions_of(snapshot, name),
        problem=problem,
        done=done,
        **header(backend, snapshot, name),
    )


@get("/live/topics/{name:str}/partitions", include_in_schema=False)
async def partitions_live(backend: NamedDependency[Backend], name: FromPath[str]) -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        rows = partitions_of(snapshot, name)
        table = backend.fragment("topic_partitions_table.html", partitions=rows)
        return {**header_fragments(backend, snapshot, name), "table": table}

    return backend.live(fragments)


@get("/api/topics/{name:str}/partitions", tags=["topics"], summary="A topic's partitions")
async def partitions_told(backend: NamedDependency[Backend], name: FromPath[str]) -> list[PartitionState]:
    return partitions_of(await seen(backend, name), name)


# Consumers -------------------------------------------------------------------------------------------


@get("/topics/{name:str}/consumers", include_in_schema=False)
async def consumers_page(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Response[str]:
    snapshot = await seen(backend, name)
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_consumers.html",
        consumers=consumers_of(snapshot, name),
        **header(backend, snapshot, name),
    )


@get("/live/topics/{name:str}/consumers", include_in_schema=False)
async def consumers_live(backend: NamedDependency[Backend], name: FromPath[str]) -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        table = backend.fragment(
            "topic_consumers_table.html",
            consumers=consumers_of(snapshot, name),
            detailed=snapshot.detailed,
            topic=snapshot.topics.get(name),
        )
        return {**header_fragments(backend, snapshot, name), "table": table}

    return backend.live(fragments)


@get(
    "/api/topics/{name:str}/consumers", tags=["topics"], summary="The groups that read a topic, and their lag"
)
async def consumers_told(backend: NamedDependency[Backend], name: FromPath[str]) -> list[Consumer]:
    return consumers_of(await seen(backend, name), name)


# Settings --------------------------------------------------------------------------------------------


@get("/topics/{name:str}/settings", include_in_schema=False)
async def settings_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    search: Searched = "",
    own: FromQuery[bool] = False,
    done: FromQuery[str] = "",
) -> Response[str]:
    return await show_settings(request, backend, name, search=search, own=own, done=done)


async def show_settings(
    request: Request[Any, Any, Any],
    backend: Backend,
    name: str,
    *,
    search: str = "",
    own: bool = False,
    done: str = "",
    status: int = 200,
    refused: tuple[str, str, str] | None = None,
) -> Response[str]:
    """The page of settings. ``refused`` is a setting, the value that was refused, and the reason."""
    snapshot = await seen(backend, name)
    settings = await backend.run(lambda: topic_settings(backend.asking, name))
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_settings.html",
        status=status,
        shown=settings_shown(settings, search, own_only=own),
        search=search,
        own=own,
        done=done,
        refused=refused,
        **header(backend, snapshot, name),
    )


@get("/live/topics/{name:str}/{part:str}", include_in_schema=False)
async def header_live(backend: NamedDependency[Backend], name: FromPath[str], part: FromPath[str]) -> Stream:
    """Live updates for pages on which only the header changes."""
    return backend.live(lambda snapshot: header_fragments(backend, snapshot, name))


@get("/api/topics/{name:str}/settings", tags=["topics"], summary="A topic's settings, with their meaning")
async def settings_as_json(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    search: Searched = "",
    own: Annotated[bool, QueryParameter(description="Only those that the topic has of its own.")] = False,
) -> TopicSettings:
    await seen(backend, name)
    settings = await backend.run(lambda: topic_settings(backend.asking, name))
    return settings_shown(settings, search, own_only=own)


# The topic itself ------------------------------------------------------------------------------------


@get("/api/topics/{name:str}", tags=["topics"], summary="One topic")
async def as_json(backend: NamedDependency[Backend], name: FromPath[str]) -> TopicState:
    return (await seen(backend, name)).topics[name]


@get("/api/topics/{name:str}/rate", tags=["topics"], summary="Records written per second, over the last hour")
async def rate(backend: NamedDependency[Backend], name: FromPath[str]) -> Columns:
    await seen(backend, name)
    return rate_of(backend.sampler.observer.topics, name)


@get("/api/topics/{name:str}/loss", tags=["topics"], summary="What would be lost if the topic were deleted")
async def loss(backend: NamedDependency[Backend], name: FromPath[str]) -> TopicLoss:
    return loss_of(await seen(backend, name), name)


HANDLERS = (
    partitions_page,
    partitions_live,
    partitions_told,
    consumers_page,
    consumers_live,
    consumers_told,
    settings_page,
    settings_as_json,
    header_live,
    as_json,
    rate,
    loss,
)
