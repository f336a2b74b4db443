"""The list of consumer groups: searched, sorted and cut into pages on the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from millstream.console.observing.history import History
from millstream.console.observing.snapshot import GroupState, Snapshot
from millstream.console.paging import PER_PAGE, Order, cut, has_words
from millstream.console.pipelines.listing import owner_of
from millstream.jobs.owners import Owner
from millstream.jobs.report import DisplayedState

TREND_POINTS = 30
Sort = Literal["name", "state", "members", "lag", "behind", "rate", "loss"]
Only = Literal["", "behind", "active", "empty", "losing"]


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """Which groups are requested. Every word of ``search`` must be in the name. ``only`` selects those that
    are behind, that have members, that have none, or that have lost records or are about to.
    """

    search: str = ""
    sort: Sort = "name"
    order: Order = "asc"
    page: int = 1
    per_page: int = PER_PAGE
    only: Only = ""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of the list. ``trend`` is its lag over the last hour, the newest last. ``pipeline`` is the
    job that owns it: the job reads without being a member, so the broker calls the group empty.
    """

    name: str
    state: str
    kind: str
    members: int
    topics: list[str]
    lag: int
    behind_ms: int | None
    lost: int
    read_per_second: float
    loss_ms: int | None
    loss_at: str | None
    trend: list[float | None]
    pipeline: str | None = None
    pipeline_state: DisplayedState | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One page of the list. ``found`` counts the groups found on all pages, ``total`` all groups. ``query``
    is the request, with the number of the page shown. ``detailed`` is false, and no groups are listed, until
    groups have been looked at for the first time.
    """

    groups: list[GroupRow]
    found: int
    total: int
    pages: int
    query: GroupQuery
    detailed: bool


_BY: dict[Sort, Callable[[GroupState], Any]] = {
    "name": lambda group: group.name.casefold(),
    "state": lambda group: group.state,
    "members": lambda group: group.members,
    "lag": lambda group: group.lag,
    "behind": lambda group: group.behind_ms or 0,
    "rate": lambda group: group.read_per_second,
    "loss": lambda group: float("inf") if group.loss_ms is None else group.loss_ms,
}
_ONLY: dict[Only, Callable[[GroupState], bool]] = {
    "": lambda group: True,
    "behind": lambda group: group.lag > 0,
    "active": lambda group: group.members > 0,
    "empty": lambda group: group.members == 0,
    "losing": lambda group: group.lost > 0 or group.loss_ms is not None,
}


def group_list(snapshot: Snapshot, lag: History, query: GroupQuery) -> GroupPage:
    """One page of the list. A page number beyond the last means the last."""
    everything = list(snapshot.groups.values())
    found = [
        group for group in everything if has_words(group.name, query.search) and _ONLY[query.only](group)
    ]
    found.sort(key=_BY["name"])
    found.sort(key=_BY[query.sort], reverse=query.order == "desc")
    shown, page, pages = cut(found, query.page, query.per_page)
    trends = lag.columns(*(group.name for group in shown), most=TREND_POINTS).series
    return GroupPage(
        [_row(group, trends[group.name], owner_of(snapshot, group.name)) for group in shown],
        len(found),
        len(everything),
        pages,
        replace(query, page=page),
        snapshot.detailed,
    )


def _row(group: GroupState, trend: list[float | None], owner: Owner | None) -> GroupRow:
    return GroupRow(
        group.name,
        group.state,
        group.kind,
        group.members,
        list(group.topics),
        group.lag,
        group.behind_ms,
        group.lost,
        group.read_per_second,
        group.loss_ms,
        None if group.loss_at is None else str(group.loss_at),
        trend,
        None if owner is None else owner.job,
        None if owner is None else owner.state,
    )
