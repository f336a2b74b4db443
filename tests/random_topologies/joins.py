"""The model of joins of streams and tables, and of gatherings, written from docs/guides/joins.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.random_topologies.shape import About, Given, Row, Step, by_key, in_order
from tests.random_topologies.stateless import SourceStep
from tests.random_topologies.values import SECOND


def joined_columns(left: About, right: About, on: str, time: str) -> dict[str, str]:
    """The key once, then this side's columns, then the other's. Columns of both sides get the side's name."""
    found = {on: left.columns[on]}
    for word, own, other in (("left", left, right), ("right", right, left)):
        for name, kind in own.columns.items():
            if name not in (on, "join_time"):
                found[f"{word}_{name}" if name in other.columns else name] = kind
    return {**found, time: "timestamp"}


def _joined(about: tuple[About, About], on: str, left: Row | None, right: Row | None, time: int) -> Row:
    values: dict[str, Any] = {}
    for word, row, own, other in (("left", left, *about), ("right", right, *reversed(about))):
        for name in own.columns:
            if name == on:
                values[on] = row.values[on] if row is not None else values.get(on)
            elif name != "join_time":
                shown = f"{word}_{name}" if name in other.columns else name
                values[shown] = None if row is None else row.values[name]
    return Row({**values, "join_time": time}, time)


@dataclass(frozen=True)
class Join(Step):
    on: str
    within: tuple[int, int]
    how: str
    order: str
    of: tuple[About, About]
    named: bool

    def declare(self, flow: Any, *streams: Any) -> Any:
        left, right = streams
        lower, upper = self.within
        return left.join(
            right,
            on=self.on,
            within=(f"{lower} seconds", f"{upper} seconds"),
            how=self.how,
            order=self.order,
            **({"name": self.name} if self.named else {}),
        )

    def expected(self, *rows: list[Row]) -> Given:
        left, right = ([row for row in part if not row.is_late] for part in rows)
        lower, upper = (bound * SECOND for bound in self.within)
        found = []
        matched: set[tuple[str, int]] = set()
        for one in left:
            for other in right:
                key = one.values[self.on]
                if key is None or key != other.values[self.on]:
                    continue
                if lower <= other.time - one.time <= upper:
                    matched |= {("left", id(one)), ("right", id(other))}
                    found.append(_joined(self.of, self.on, one, other, max(one.time, other.time)))
        for side, part in (("left", left), ("right", right)):
            if self.how in (side, "outer"):
                for row in part:
                    if (side, id(row)) not in matched:
                        pair = (row, None) if side == "left" else (None, row)
                        found.append(_joined(self.of, self.on, *pair, row.time))
        return {"": found}

    def __str__(self) -> str:
        return (
            f"{self.name} = {self.inputs[0]}.join({self.inputs[1]}, on={self.on!r}, within={self.within} s, "
            f"how={self.how!r}, order={self.order!r})"
        )


@dataclass(frozen=True)
class TableStep(SourceStep):
    """A topic as a table; a row with ``op`` 'd' is a deletion."""

    def declare(self, flow: Any, *streams: Any) -> Any:
        return flow.table(
            self.name,
            schema=self.schema,
            key="k",
            time=self.time,
            lateness=f"{self.lateness} seconds",
            idle_after=None,
            delete_when="op = 'd'",
            name=self.name,
        )


@dataclass(frozen=True)
class TableJoin(Step):
    how: str
    of: tuple[About, About]
    named: bool

    def declare(self, flow: Any, *streams: Any) -> Any:
        stream, table = streams
        return stream.join(table, on="k", how=self.how, **({"name": self.name} if self.named else {}))

    def expected(self, *rows: list[Row]) -> Given:
        changes = by_key(rows[1], ["k"])
        found = []
        for row in in_order(one for one in rows[0] if not one.is_late):
            known = [one for one in changes.get((row.values["k"],), ()) if one.time <= row.time]
            there = known[-1] if known and row.values["k"] is not None else None
            if there is not None and there.values["op"] == "d":
                there = None
            if there is not None or self.how == "left":
                found.append(_joined(self.of, "k", row, there, row.time))
        return {"": found}

    def __str__(self) -> str:
        return f"{self.name} = {self.inputs[0]}.join({self.inputs[1]}, on='k', how={self.how!r})  # a table"


@dataclass(frozen=True)
class Gather(Step):
    timeout: int
    named: bool

    def declare(self, flow: Any, *streams: Any) -> Any:
        one, other = streams
        return flow.gather(
            one=one,
            other=other,
            by="k",
            timeout=f"{self.timeout} seconds",
            **({"name": self.name} if self.named else {}),
        )

    def expected(self, *rows: list[Row]) -> Given:
        given = [
            Row({**row.values, "part": part}, row.time, row.place, row.watermark)
            for part, own in zip(("one", "other"), rows, strict=True)
            for row in own
        ]
        found: Given = {"": [], "incomplete": [], "duplicates": []}
        for (key,), own in by_key((row for row in given if not row.is_late), ["k"]).items():
            if key is None:  # it equals nothing, so each row is alone
                for row in own:
                    self._end(key, {row.values["part"]: row}, row.time, found)
                continue
            parts: dict[str, Row] = {}
            until = 0
            for row in own:
                if parts and row.time >= until:
                    self._end(key, parts, until, found)
                    parts = {}
                if not parts:
                    until = row.time + self.timeout * SECOND
                part = row.values["part"]
                if part in parts:
                    found["duplicates"].append(Row({"k": key, "part": part}, row.time))
                    continue
                parts[part] = row
                if len(parts) == 2:
                    values = {f"v_{name}": one.values["v"] for name, one in parts.items()}
                    found[""].append(Row({"k": key, **values, "gather_time": row.time}, row.time))
            if parts:
                self._end(key, parts, until, found)
        return found

    def _end(self, key: Any, parts: dict[str, Row], until: int, found: Given) -> None:
        if len(parts) == 1:
            missing = "other" if "one" in parts else "one"
            found["incomplete"].append(Row({"k": key, "missing": [missing]}, until))

    def __str__(self) -> str:
        one, other = self.inputs
        return f"{self.name} = flow.gather(one={one}, other={other}, by='k', timeout={self.timeout} s)"
