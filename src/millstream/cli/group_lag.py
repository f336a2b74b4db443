"""Measures and shows the lag of groups, finds reasons for an alert, and shows what a group missed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from millstream.cli.terminal.output import note, say, show_json, show_table
from millstream.client.insight.lag import UNKNOWN, GroupLoss, Lag, group_lag, with_progress
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.template import utc
from millstream.core.clock import SystemClock
from millstream.core.errors import RequestFailed
from millstream.core.kafka_errors import GROUP_ID_NOT_FOUND
from millstream.core.units import count, duration_text

_LOOK_TWICE_MS = 10_000  # how long a group is watched before it is reported to lose records


class GroupLag(NamedTuple):
    group: str
    lags: list[Lag]
    now_ms: int
    looked_at: float  # by the monotonic clock, in seconds

    @property
    def records(self) -> int:
        return sum(lag.records or 0 for lag in self.lags)

    @property
    def lost(self) -> int:
        return sum(lag.lost for lag in self.lags)


def measured(admin: Admin, group: str | None, before_ms: int | None, over_ms: int | None) -> list[GroupLag]:
    """The lag of one group, or of all. A group that would lose records within ``before_ms`` if it stood
    still is measured twice: it may be reading, and fast enough. With ``over_ms``, every group that is behind
    is measured twice, that far apart.
    """
    found = [_looked(admin, group)] if group is not None else _all(admin)

    def suspect(each: GroupLag) -> bool:
        if over_ms is not None:
            return each.records > 0
        return before_ms is not None and any(_loses(lag, each.now_ms, before_ms) for lag in each.lags)

    if any(suspect(each) for each in found):
        time.sleep((_LOOK_TWICE_MS if over_ms is None else over_ms) / 1000)
    return [_watched(admin, each) if suspect(each) else each for each in found]


def _all(admin: Admin) -> list[GroupLag]:
    found = []
    for listed in admin.groups():
        if not listed.name:
            continue  # old clients may leave the name empty, and such a group can't be queried
        try:
            found.append(_looked(admin, listed.name))
        except RequestFailed as error:
            if error.code != GROUP_ID_NOT_FOUND:  # a group may have been deleted since it was listed
                raise
    return found


def _looked(admin: Admin, group: str) -> GroupLag:
    clock = SystemClock()
    now_ms, looked_at = clock.now_ms(), clock.monotonic()
    return GroupLag(group, group_lag(admin, group, now_ms), now_ms, looked_at)


def _watched(admin: Admin, each: GroupLag) -> GroupLag:
    passed = max(0.001, SystemClock().monotonic() - each.looked_at)
    return each._replace(lags=with_progress(admin, each.group, each.lags, passed))


def _loses(lag: Lag, now_ms: int, before_ms: int) -> bool:
    loss_ms = lag.loss_ms(now_ms)
    return loss_ms is not None and loss_ms <= before_ms


def alarms(groups: Sequence[GroupLag], most: int | None, before_ms: int | None) -> list[str]:
    """One sentence for each reason to raise an alert."""
    reasons = []
    for each in groups:
        group, lags, now_ms, _ = each
        if most is not None and each.records > most:
            reasons.append(f"{group} is {count(each.records, 'record')} behind, more than {most:,}")
        for lag in lags:
            if lag.lost:
                reasons.append(
                    f"{group} has lost {count(lag.lost, 'record')} of {lag.partition}: deleted unread"
                )
            if before_ms is not None and _loses(lag, now_ms, before_ms):
                soon = lag.loss_ms(now_ms) or 0
                reasons.append(
                    f"{group} loses records of {lag.partition} in {duration_text(soon)}, sooner than in"
                    f" {duration_text(before_ms)}"
                )
    return reasons


def show(groups: Sequence[GroupLag], *, named: bool, json: bool) -> None:
    """Print the lag of all ``groups``. Their names are printed unless the user named the group."""
    if json:
        show_json([row for group in groups for row in _rows(group, named=named)])
        return
    if not groups:
        note("no consumer groups")
    for at, group in enumerate(groups):
        if at:
            say()
        _show_one(group, named=named)


def _rows(group: GroupLag, *, named: bool) -> list[dict[str, Any]]:
    return [
        {
            **({} if named else {"group": group.group}),
            "topic": lag.partition.topic,
            "partition": lag.partition.partition,
            "committed": lag.committed,
            "start": None if lag.bounds is UNKNOWN else lag.bounds.start,
            "end": None if lag.bounds is UNKNOWN else lag.bounds.end,
            "records": lag.records,
            "behind_ms": lag.behind_ms,
            "age_ms": lag.age_ms(group.now_ms),
            "oldest_unread": None if lag.oldest_ms is None else utc(lag.oldest_ms),
            "loss_ms": lag.loss_ms(group.now_ms),
            "lost": lag.lost,
            "member": lag.member,
            "problem": lag.problem or None,
        }
        for lag in group.lags
    ]


def _show_one(group: GroupLag, *, named: bool) -> None:
    if not named:
        say(f"{group.group}:")
    if not group.lags:
        say(f"{group.group} has committed no offsets and reads nothing.")
        return
    losing = any(lag.loss_ms(group.now_ms) is not None for lag in group.lags)
    columns = ["topic", "partition", "committed", "end", "lag", "behind"]
    columns += ["loses in"] if losing else []
    columns += ["lost"] if group.lost else []
    rows: list[list[Any]] = []
    for lag in group.lags:
        end = None if lag.bounds is UNKNOWN else lag.bounds.end
        row: list[Any] = [lag.partition.topic, lag.partition.partition, lag.committed, end]
        row += [lag.records, _behind(lag)]
        if losing:
            loss_ms = lag.loss_ms(group.now_ms)
            row.append(None if loss_ms is None else duration_text(loss_ms))
        row += [lag.lost] if group.lost else []
        rows.append([*row, lag.member])
    show_table([*columns, "member"], rows)
    ages = [age for lag in group.lags if (age := lag.age_ms(group.now_ms))]
    say(
        f"{count(group.records, 'record')} behind"
        + (f", the oldest {duration_text(max(ages))} old" if ages else "")
    )
    for lag in group.lags:
        if lag.problem:
            note(f"{lag.partition}: not fully known: {lag.problem}")
    if group.lost:
        note(f"{count(group.lost, 'record')} deleted before this group read them")


def _behind(lag: Lag) -> str | None:
    """The time from the oldest unread record to the newest; "none" only where nothing is unread."""
    if lag.behind_ms is None:
        return None
    return duration_text(lag.behind_ms) if lag.records else "none"


def missed_json(missed: Sequence[GroupLoss]) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "records": each.records,
            "first_offset": each.first_offset,
            "last_offset": each.next_offset - 1,
            "first_time": utc(each.first_ms) or None,
            "last_time": utc(each.last_ms) or None,
            "deleted": utc(each.lost_ms),
            "records_ever": each.total,
        }
        for each in missed
    ]


def show_missed(missed: Sequence[GroupLoss]) -> None:
    if not missed:
        return
    say("Deleted before it had read them:")
    show_table(
        ["topic", "partition", "records", "offsets", "written from", "to", "in all"],
        [
            [
                each.partition.topic,
                each.partition.partition,
                each.records,
                f"{each.first_offset}-{each.next_offset - 1}",
                utc(each.first_ms) or None,
                utc(each.last_ms) or None,
                each.total,
            ]
            for each in missed
        ],
    )
