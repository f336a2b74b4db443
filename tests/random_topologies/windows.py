"""The model of windows and their aggregates, written from docs/guides/windows.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.random_topologies.shape import About, Given, Row, Step, by_key
from tests.random_topologies.stateless import CONDITION
from tests.random_topologies.values import SECOND, canonical, order

Values = list[dict[str, Any]]

BEFORE_END = 1  # microseconds from the time of a tumbling window's result to the window's end


def _known(rows: Values, column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _sum(rows: Values, column: str) -> Any:
    values = _known(rows, column)
    if not values:
        return None
    return math.fsum(values) if all(map(_is_finite, values)) else sum(values)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _whole_sum(rows: Values, column: str) -> Any:
    values = _known(rows, column)
    return sum(values, start=Decimal(0) if isinstance(values[0], Decimal) else 0) if values else None


def _extreme(choose: Callable[..., Any], column: str) -> Callable[[Values], Any]:
    return lambda rows: choose(_known(rows, column), key=order, default=None)


def _by(choose: Callable[..., Any], of: str, column: str) -> Callable[[Values], Any]:
    """The value beside the extreme. If several rows tie, Python's max and min also take the earliest."""

    def found(rows: Values) -> Any:
        some = [row for row in rows if row[column] is not None]
        return choose(some, key=lambda row: row[column])[of] if some else None

    return found


def _in_time(column: str, at: int) -> Callable[[Values], Any]:
    return lambda rows: rows[at][column]


@dataclass(frozen=True)
class Aggregate:
    sql: str
    kind: str
    needs: tuple[str, ...]
    of: Callable[[Values], Any]
    by_order: bool = False  # rows of one time must have an order


AGGREGATES = [
    Aggregate("count(*)", "bigint", (), len),
    Aggregate("count(s)", "bigint", ("s",), lambda rows: len(_known(rows, "s"))),
    Aggregate("count(DISTINCT s)", "bigint", ("s",), lambda rows: len(set(_known(rows, "s")))),
    Aggregate("count_if(v > 5)", "bigint", ("v",), lambda rows: sum(v > 5 for v in _known(rows, "v"))),
    Aggregate(
        "count(*) FILTER (WHERE flag)", "bigint", ("flag",), lambda rows: sum(_known(rows, "flag"))
    ),
    Aggregate("sum(v)", "bigint", ("v",), lambda rows: _whole_sum(rows, "v")),
    Aggregate("sum(d)", "decimal", ("d",), lambda rows: _whole_sum(rows, "d")),
    Aggregate("sum(x)", "real", ("x",), lambda rows: _sum(rows, "x")),
    *(
        Aggregate(f"{name}({column})", kind, (column,), _extreme(choose, column))
        for column, kind in (("v", "bigint"), ("s", "string"), ("x", "real"), ("d", "decimal"),
                             ("b", "binary"), ("t", "timestamp"))
        for name, choose in (("min", min), ("max", max))
    ),
    Aggregate("bool_or(flag)", "boolean", ("flag",), lambda rows: max(_known(rows, "flag"), default=None)),
    Aggregate("collect_set(v)", "list", ("v",), lambda rows: sorted(set(_known(rows, "v")))),
    Aggregate("first(v)", "bigint", ("v",), _in_time("v", 0), by_order=True),
    Aggregate("last(s)", "string", ("s",), _in_time("s", -1), by_order=True),
    Aggregate("last(n)", "nested", ("n",), _in_time("n", -1), by_order=True),
    Aggregate("first(m)", "map", ("m",), _in_time("m", 0), by_order=True),
    Aggregate("collect_list(v)", "list", ("v",), lambda rows: _known(rows, "v"), by_order=True),
    Aggregate("max_by(s, v)", "string", ("s", "v"), _by(max, "s", "v"), by_order=True),
    Aggregate("min_by(v, d)", "bigint", ("v", "d"), _by(min, "v", "d"), by_order=True),
]  # fmt: skip
AGGREGATE = {one.sql: one for one in AGGREGATES}


@dataclass(frozen=True)
class Window(Step):
    by: tuple[str, ...]
    aggregates: dict[str, str]
    options: dict[str, Any]
    named: bool

    @property
    def is_tumbling(self) -> bool:
        return "size" in self.options and self.options.get("every") != "event"

    @property
    def emit(self) -> str:
        default = "update" if self.is_tumbling else "final"
        return str(self.options.get("emit", default))

    def declare(self, flow: Any, *streams: Any) -> Any:
        options = {
            name: f"{value} seconds" if isinstance(value, int) and not isinstance(value, bool) else value
            for name, value in self.options.items()
        }
        name = {"name": self.name} if self.named else {}
        return streams[0].window(by=list(self.by), **options, **name).agg(**self.aggregates)

    def expected(self, *rows: list[Row]) -> Given:
        found: Given = {"": [], "late": [], "outside": []}
        if self.is_tumbling:
            groups = self._tumbling(rows[0], found)
        else:
            on_time = [row for row in rows[0] if not row.is_late]
            found["late"] = [_late(row) for row in rows[0] if row.is_late]
            kind = self._moving if "size" in self.options else self._sessions
            if "opens" in self.options:
                kind = lambda key, own: self._opened(own, found)  # noqa: E731
            groups = [
                (key, *window) for key, own in by_key(on_time, self.by).items() for window in kind(key, own)
            ]
        for key, start, end, inside in groups:
            values = [row.values for row in inside]
            found[""].append(
                Row(
                    {
                        **dict(zip(self.by, key, strict=True)),
                        "window_start": start,
                        "window_end": end,
                        **{name: AGGREGATE[sql].of(values) for name, sql in self.aggregates.items()},
                    },
                    end - (BEFORE_END if self.is_tumbling else 0),
                )
            )
        return found

    def _tumbling(self, rows: list[Row], found: Given) -> Iterable[tuple[Any, int, int, list[Row]]]:
        size = self.options["size"] * SECOND
        every = self.options.get("every", self.options["size"]) * SECOND
        windows: dict[tuple[Any, int], list[Row]] = {}
        for key, own in by_key(rows, self.by).items():
            for row in own:
                last = row.time // every * every
                starts = range(last, row.time - size, -every)
                is_open = [start for start in starts if start + size > row.watermark]
                if not is_open:
                    found["late"].append(_late(row))
                for start in is_open:
                    windows.setdefault((key, start), []).append(row)
        return [(key, start, start + size, inside) for (key, start), inside in windows.items()]

    def _moving(self, key: Any, rows: list[Row]) -> Iterable[tuple[int, int, list[Row]]]:
        size = self.options["size"] * SECOND
        for row in rows:
            yield row.time - size, row.time, [one for one in rows if row.time - size < one.time <= row.time]

    def _sessions(self, key: Any, rows: list[Row]) -> Iterable[tuple[int, int, list[Row]]]:
        gap = self.options["gap"] * SECOND
        session: list[Row] = []
        for row in rows:
            if session and row.time - session[-1].time > gap:
                yield session[0].time, session[-1].time + gap, session
                session = []
            session.append(row)
        yield session[0].time, session[-1].time + gap, session

    def _opened(self, rows: list[Row], found: Given) -> Iterable[tuple[int, int, list[Row]]]:
        opens, closes = (CONDITION[self.options[word]] for word in ("opens", "closes"))
        timeout = self.options["timeout"] * SECOND
        session: list[Row] = []

        def end() -> int:
            return session[0 if self.options["timeout_from"] == "first" else -1].time + timeout

        for row in rows:
            if session and row.time >= end():
                yield session[0].time, end(), session
                session = []
            if session or opens(row.values):
                session.append(row)
            else:
                found["outside"].append(row)
                continue
            if closes(row.values):
                yield session[0].time, row.time, session
                session = []
        if session:
            yield session[0].time, end(), session

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        name = f", name={self.name!r}" if self.named else ""
        return (
            f"{self.name} = {self.inputs[0]}.window(by={list(self.by)}, {given}{name}).agg({self.aggregates})"
        )


def _late(row: Row) -> Row:
    return row.with_values({**row.values, "watermark": row.watermark})


def about_window(given: About, by: Iterable[str], aggregates: dict[str, str]) -> dict[str, About]:
    columns = {name: given.columns[name] for name in by}
    columns |= {"window_start": "timestamp", "window_end": "timestamp"}
    columns |= {name: AGGREGATE[sql].kind for name, sql in aggregates.items()}
    late = {**given.columns, "watermark": "timestamp"}
    return {
        "": About(columns, "window_end", ordered=False, derived=True),
        "late": About(late, given.time, derived=True),
        "outside": About(given.columns, given.time, ordered=False, derived=True),
    }


def latest(rows: list[dict[str, Any]], columns: dict[str, str], keys: Iterable[str]) -> list[dict[str, Any]]:
    """The last result of each window, where results were emitted again."""
    return list({tuple(canonical(columns[name], row[name]) for name in keys): row for row in rows}.values())
