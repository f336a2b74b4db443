"""Topics: the list, and the handlers of the pages of each topic."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, QueryParameter
from litestar.response import Stream

from millstream.console.backend import Backend, Screen
from millstream.console.messages import pages as messages
from millstream.console.observing.snapshot import Snapshot
from millstream.console.paging import PER_PAGE, Order
from millstream.console.parameters import PageNumber, Search
from millstream.console.topics import change_pages as topic_changes
from millstream.console.topics import topic_pages as topic
from millstream.console.topics.listing import Sort, TopicPage, TopicQuery, topic_list


async def asked(
    search: Search = "",
    sort: FromQuery[Sort] = "name",
    order: FromQuery[Order] = "asc",
    page: PageNumber = 1,
    per_page: Annotated[int, QueryParameter(ge=1, le=1000, description="Topics on a page.")] = PER_PAGE,
    internal: Annotated[bool, QueryParameter(description="Kafka's own topics too.")] = False,
) -> TopicQuery:
    return TopicQuery(search, sort, order, page, per_page, internal)


_ASKED = {"wanted": Provide(asked)}


@get("/topics", include_in_schema=False, dependencies=_ASKED)
async def page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    wanted: NamedDependency[TopicQuery],
    create: FromQuery[bool] = False,
    done: FromQuery[str] = "",
) -> Response[str]:
    shown = topic_list(await backend.sampler.first(), wanted)
    form = dict.fromkeys(topic_changes.CREATE_FIELDS, "")
    return backend.page(
        request, SCREEN, "topics.html", listed=shown, create=create, done=done, problem="", form=form
    )


@get("/live/topics", include_in_schema=False, dependencies=_ASKED)
async def live(backend: NamedDependency[Backend], wanted: NamedDependency[TopicQuery]) -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        return {"table": backend.fragment("topics_table.html", listed=topic_list(snapshot, wanted))}

    return backend.live(fragments)


@get("/api/topics", tags=["topics"], summary="Topics: searched, sorted, by page", dependencies=_ASKED)
async def listed(backend: NamedDependency[Backend], wanted: NamedDependency[TopicQuery]) -> TopicPage:
    return topic_list(await backend.sampler.first(), wanted)


SCREEN = Screen(
    "topics",
    "Topics",
    "/topics",
    shortcut="t",
    handlers=(page, live, listed, *messages.HANDLERS, *topic.HANDLERS, *topic_changes.HANDLERS),
)
