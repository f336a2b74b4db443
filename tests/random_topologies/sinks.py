"""The sinks of a case, and the comparison of what is in them with the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.random_topologies.shape import About, Row
from tests.random_topologies.stateless import CONDITION
from tests.random_topologies.values import canonical, order, read
from tests.random_topologies.windows import latest


@dataclass(frozen=True)
class TopicSink:
    """``way`` is what is compared: "all" rows, the "latest" of each window, the "net" of results and
    retractions, or the "raw" values of records that did not parse. ``some``: the sink was added late, and has
    only some of the rows."""

    topic: str
    stream: str
    about: About
    way: str
    keys: tuple[str, ...] = ()
    some: bool = False

    def declare(self, stream: Any) -> None:
        if self.way == "raw":
            stream.to_topic(self.topic)
        else:
            stream.to_topic(
                self.topic, value=[*self.about.columns, *(["change"] if self.way == "net" else [])]
            )

    def difference(self, expected: list[Row], values: Iterable[bytes | None]) -> str | None:
        found = list(values)
        if self.way == "raw":
            return _difference(
                Counter(repr(row.values["value"]) for row in expected), Counter(map(repr, found)), self.topic
            )
        columns = self.about.columns
        texts = [value for value in found if value is not None]
        if self.way == "net":
            return self._net(expected, texts)
        rows = [read(columns, value) for value in texts]
        if self.way == "latest":
            rows = latest(rows, columns, self.keys)
        want, got = _counted(columns, (row.values for row in expected)), _counted(columns, rows)
        return _difference(want if not self.some else want & got, got, self.topic)

    def _net(self, expected: list[Row], values: list[bytes]) -> str | None:
        got: Counter[str] = Counter()
        for value in values:
            row = read({**self.about.columns, "change": "bigint"}, value)
            shown = _shown(self.about.columns, row)
            got[shown] += row["change"]
            if got[shown] < 0:
                return f"{self.topic}: took back what it had not given: {shown}"
        return _difference(_counted(self.about.columns, (row.values for row in expected)), +got, self.topic)

    def __str__(self) -> str:
        return f"{self.stream} -> topic {self.topic} ({self.way})"


@dataclass(frozen=True)
class ViewSink:
    view: str
    stream: str
    about: About
    key: tuple[str, ...]
    order: str
    delete_when: str | None

    def declare(self, stream: Any) -> None:
        by = {} if self.order == "window_end" else {"order": self.order}
        stream.to_view(self.view, key=list(self.key), delete_when=self.delete_when, **by)

    def difference(self, expected: list[Row], rows: Iterable[Mapping[str, Any]]) -> str | None:
        """``rows`` are as a reader of views returns them."""
        kept: dict[tuple[str, ...], Row] = {}
        for row in sorted(expected, key=lambda row: order(row.values[self.order])):
            if all(row.values[name] is not None for name in self.key):
                kept[tuple(self._key(name, row.values[name]) for name in self.key)] = row
        want = [
            row.values
            for row in kept.values()
            if self.delete_when is None or not CONDITION[self.delete_when](row.values)
        ]
        # SQLite does not keep the sign of a zero.
        columns = {name: _in_views(kind) for name, kind in self.about.columns.items()}
        got = [{name: row.get(name) for name in columns} for row in rows]
        return _difference(_counted(columns, want), _counted(columns, got), f"view {self.view}")

    def _key(self, name: str, value: Any) -> str:
        return canonical(_in_views(self.about.columns[name]), value)

    def __str__(self) -> str:
        how = f"key={self.key} order={self.order} delete_when={self.delete_when}"
        return f"{self.stream} -> view {self.view} {how}"


def _in_views(kind: str) -> str:
    return "real" if kind == "double" else kind


Sink = TopicSink | ViewSink


def _shown(columns: dict[str, str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={canonical(kind, values[name])}" for name, kind in columns.items())


def _counted(columns: dict[str, str], rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(_shown(columns, row) for row in rows)


def _difference(want: Counter[str], got: Counter[str], where: str) -> str | None:
    if want == got:
        return None
    lines = [f"{where}: {want.total()} rows were expected, {got.total()} are there"]
    lines += [f"  missing  {count} x {row}" for row, count in sorted((want - got).items())[:8]]
    lines += [f"  too many {count} x {row}" for row, count in sorted((got - want).items())[:8]]
    return "\n".join(lines)
