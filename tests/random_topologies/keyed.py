"""The model of patterns, processors and deduplications, written from their pages in docs/guides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millstream import Processor, absent, step
from tests.random_topologies.shape import Given, Row, Step, by_key
from tests.random_topologies.stateless import CONDITION
from tests.random_topologies.values import KINDS, SECOND

QUIET = 12  # seconds without events after which the processor reports a key as quiet


class Totals(Processor):
    """Counts and adds up a key's events, and forgets them when nothing has come for a while."""

    def on_event(self, event: Any, context: Any) -> None:
        state = context.state or {"n": 0, "total": 0, "kept": []}
        state["n"] += 1
        state["total"] += event.v or 0
        state["kept"] = [*state["kept"], event.v][-2:]
        context.state = state
        context.timer(event.time + timedelta(seconds=QUIET), name="quiet")
        context.emit(what="event", n=state["n"], total=state["total"])
        if state["n"] % 3 == 0:
            context.emit_to("thirds", kept=state["kept"])

    def on_timer(self, timer: Any, context: Any) -> None:
        context.emit(what=timer.name, n=context.state["n"], total=context.state["total"])
        context.state = None


class OtherTotals(Totals):
    """Another class, which must not get the state of the first."""


@dataclass(frozen=True)
class Process(Step):
    by: tuple[str, ...]
    named: bool
    with_: type[Processor] = Totals

    def declare(self, flow: Any, *streams: Any) -> Any:
        keys = ", ".join(f"{name} {KINDS[self.about[''].columns[name]].ddl}" for name in self.by)
        options: dict[str, Any] = {
            "key": list(self.by),
            "with_": self.with_,
            "output": f"{keys}, what string, n bigint, total bigint, since timestamp",
            "time": "since",
            "channels": {"thirds": f"{keys}, kept array<bigint>"},
            **({"name": self.name} if self.named else {}),
        }
        if len(streams) == 1:
            return streams[0].process(**options)
        return flow.process(list(streams), **options)

    def expected(self, *rows: list[Row]) -> Given:
        given = [row for part in rows for row in part]
        found: Given = {"": [], "thirds": [], "late": []}
        for key, own in by_key((row for row in given if not row.is_late), self.by).items():
            self._of_key(dict(zip(self.by, key, strict=True)), own, found)
        return found

    def _of_key(self, key: dict[str, Any], rows: list[Row], found: Given) -> None:
        n = total = 0
        kept: list[Any] = []
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            n, total, kept = n + 1, total + (row.values["v"] or 0), [*kept, row.values["v"]][-2:]
            found[""].append(self._row(key, "event", n, total, row.time))
            if n % 3 == 0:
                found["thirds"].append(Row({**key, "kept": kept}, row.time))
            due = row.time + QUIET * SECOND
            if following is None or following.time >= due:
                found[""].append(self._row(key, "quiet", n, total, due))
                n, total, kept = 0, 0, []

    def _row(self, key: dict[str, Any], what: str, n: int, total: int, time: int) -> Row:
        return Row({**key, "what": what, "n": n, "total": total, "since": time}, time)

    def __str__(self) -> str:
        name = f", name={self.name!r}" if self.named else ""
        given = ", ".join(self.inputs)
        return f"{self.name} = process({given}; key={list(self.by)}, {self.with_.__name__}{name})"


@dataclass(frozen=True)
class Pattern(Step):
    """One event followed by another (``way`` "then"), or by none (``way`` "none")."""

    by: tuple[str, ...]
    first: str
    second: str
    way: str
    within: int
    after_match: str
    named: bool

    def declare(self, flow: Any, *streams: Any) -> Any:
        last = step("two", self.second) if self.way == "then" else absent("two", self.second)
        give = {"v1": "one.v", "t1": f"one.{self._time_in}"}
        if self.way == "then":
            give |= {"v2": "two.v"}
        return streams[0].pattern(
            by=list(self.by),
            steps=[step("one", self.first), last],
            within=f"{self.within} seconds",
            give=give,
            after_match=self.after_match,
            **({"name": self.name} if self.named else {}),
        )

    @property
    def _time_in(self) -> str:
        return self.about["late"].time

    def expected(self, *rows: list[Row]) -> Given:
        first, second = CONDITION[self.first], CONDITION[self.second]
        found: Given = {"": [], "late": []}
        for key, own in by_key((row for row in rows[0] if not row.is_late), self.by).items():
            matches = []
            for number, row in enumerate(own):
                if not first(row.values):
                    continue
                limit = row.time + self.within * SECOND
                ends = [
                    at
                    for at in range(number + 1, len(own))
                    if own[at].time < limit and second(own[at].values)
                ]
                if self.way == "none" and not ends:
                    matches.append((limit, number, None))
                elif self.way == "then" and ends:
                    matches.append((own[ends[0]].time, number, ends[0]))
            taken = -1
            for end, number, last in sorted(matches, key=lambda one: (one[2] or 0, one[1])):
                if self.after_match == "skip past last":
                    if number <= taken:
                        continue
                    taken = last if last is not None else taken
                values = {
                    **dict(zip(self.by, key, strict=True)),
                    "match_start": own[number].time,
                    "match_end": end,
                    "v1": own[number].values["v"],
                    "t1": own[number].values[self._time_in],
                }
                if last is not None:
                    values["v2"] = own[last].values["v"]
                found[""].append(Row(values, end))
        return found

    def __str__(self) -> str:
        name = f", name={self.name!r}" if self.named else ""
        return (
            f"{self.name} = {self.inputs[0]}.pattern(by={list(self.by)}, one: {self.first}, {self.way}: "
            f"{self.second}, within='{self.within} seconds', after_match={self.after_match!r}{name})"
        )


@dataclass(frozen=True)
class Deduplicate(Step):
    by: tuple[str, ...]
    within: int
    named: bool

    def declare(self, flow: Any, *streams: Any) -> Any:
        name = {"name": self.name} if self.named else {}
        return streams[0].deduplicate(by=list(self.by), within=f"{self.within} seconds", **name)

    def expected(self, *rows: list[Row]) -> Given:
        found: Given = {"": [], "duplicates": []}
        for own in by_key((row for row in rows[0] if not row.is_late), self.by).values():
            end = None
            for row in own:
                first = end is None or row.time >= end
                found["" if first else "duplicates"].append(Row(row.values, row.time))
                if first:
                    end = row.time + self.within * SECOND
        return found

    def __str__(self) -> str:
        name = f", name={self.name!r}" if self.named else ""
        given = f"by={list(self.by)}, within='{self.within} seconds'{name}"
        return f"{self.name} = {self.inputs[0]}.deduplicate({given})"
