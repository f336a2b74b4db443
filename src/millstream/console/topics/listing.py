"""The list of topics: searched, sorted and cut into pages on the server, so that a thousand load fast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from millstream.console.observing.snapshot import Snapshot, TopicState
from millstream.console.paging import PER_PAGE, Order, cut, has_words

Sort = Literal["name", "partitions", "records", "bytes", "rate", "kept"]


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """Which topics are requested. Every word of ``search`` must be in the name."""

    search: str = ""
    sort: Sort = "name"
    order: Order = "asc"
    page: int = 1
    per_page: int = PER_PAGE
    internal: bool = False


@dataclass(frozen=True, slots=True)
class TopicPage:
    """One page of the list. ``found`` counts the topics found on all pages, and ``hidden`` the internal
    topics left out. ``query`` is the request, with the number of the page shown.
    """

    topics: list[TopicState]
    found: int
    total: int
    hidden: int
    pages: int
    query: TopicQuery


_BY: dict[Sort, Callable[[TopicState], Any]] = {
    "name": lambda topic: topic.name.casefold(),
    "partitions": lambda topic: topic.partitions,
    "records": lambda topic: topic.records or 0,
    "bytes": lambda topic: topic.bytes or 0,
    "rate": lambda topic: topic.records_per_second,
    "kept": lambda topic: float("inf") if topic.kept_seconds is None else topic.kept_seconds,
}


def topic_list(snapshot: Snapshot, query: TopicQuery) -> TopicPage:
    """One page of the list. A page number beyond the last means the last."""
    everything = list(snapshot.topics.values())
    shown = [topic for topic in everything if query.internal or not topic.internal]
    found = [topic for topic in shown if has_words(topic.name, query.search)]
    found.sort(key=_BY["name"])
    found.sort(key=_BY[query.sort], reverse=query.order == "desc")
    topics, page, pages = cut(found, query.page, query.per_page)
    return TopicPage(
        topics,
        len(found),
        len(shown),
        len(everything) - len(shown),
        pages,
        replace(query, page=page),
    )
