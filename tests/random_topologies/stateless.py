"""Sources, and steps that look at one row at a time: conditions, selections, functions, channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.random_topologies.shape import NEVER, About, Given, Row, Step
from tests.random_topologies.values import KINDS, SECOND, record, time_text


@dataclass(frozen=True)
class Record:
    """A record of the input. ``values`` is None if it does not parse."""

    partition: int
    value: bytes
    time: int  # of the event; the record in the log has the same
    values: dict[str, Any] | None


@dataclass(frozen=True)
class SourceStep(Step):
    records: tuple[Record, ...]
    columns: dict[str, str]  # of the JSON
    time: str
    lateness: int  # seconds
    partitions: int
    max_rows: int | None

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {KINDS[kind].ddl}" for name, kind in self.columns.items())

    def declare(self, flow: Any, *streams: Any) -> Any:
        return flow.source(
            self.name,
            schema=self.schema,
            time=self.time,
            lateness=f"{self.lateness} seconds",
            max_rows=self.max_rows,
            name=self.name,
        )

    def expected(self, *rows: list[Row]) -> Given:
        latest: dict[int, int] = {}
        offsets: dict[int, int] = {}
        found, rejected = [], []
        for one in self.records:
            offset = offsets[one.partition] = offsets.get(one.partition, -1) + 1
            if one.values is None:
                rejected.append(Row({"value": one.value}, one.time))
                continue
            before = latest.get(one.partition)
            watermark = NEVER if before is None else before - self.lateness * SECOND
            values = dict(one.values)
            if self.time == "log":
                values["log_time"] = one.time
            found.append(Row(values, one.time, (one.partition, offset), watermark))
            latest[one.partition] = max(one.time, NEVER if before is None else before)
        return {"": found, "rejected": rejected}

    def __str__(self) -> str:
        lines = [
            f"{self.name} = flow.source({self.name!r}, schema={self.schema!r}, time={self.time!r}, "
            f"lateness='{self.lateness} seconds', max_rows={self.max_rows})  # {self.partitions} partitions"
        ]
        return "\n".join([*lines, *(f"    #{one.partition} {time_text(one.time)[11:]} {one.value!r}"
                                    for one in self.records)])  # fmt: skip


Test = Callable[[dict[str, Any]], bool]

# The SQL, the column that it needs, and what it means. A null is not true.
CONDITIONS: list[tuple[str, str, Test]] = [
    ("v % 3 != 0", "v", lambda row: row["v"] is not None and row["v"] % 3 != 0),
    ("v > 4", "v", lambda row: row["v"] is not None and row["v"] > 4),
    ("s IS NOT NULL", "s", lambda row: row["s"] is not None),
    ("s = 'a' OR s < 'b'", "s", lambda row: row["s"] is not None and row["s"].encode() < b"b"),
    ("x > 1", "x", lambda row: row["x"] is not None and (math.isnan(row["x"]) or row["x"] > 1)),
    ("NOT isnan(x)", "x", lambda row: row["x"] is None or not math.isnan(row["x"])),
    ("d >= 5", "d", lambda row: row["d"] is not None and row["d"] >= 5),
    ("flag", "flag", lambda row: row["flag"] is True),
    ("m['a'] = 7", "m", lambda row: row["m"] is not None and row["m"].get("a") == 7),
    ("n.a IS NULL", "n", lambda row: row["n"] is None or row["n"]["a"] is None),
]

# The SQL, the name and kind of its result, the column that it needs, and what it means for a value that is
# not null.
EXPRESSIONS: list[tuple[str, str, str, str, Callable[[Any], Any]]] = [
    ("v * 2", "v2", "bigint", "v", lambda v: v * 2),
    ("v % 3", "v3", "bigint", "v", lambda v: v % 3),
    ("-x", "xn", "double", "x", lambda x: -x),
    ("x * 0.5D", "xh", "double", "x", lambda x: x * 0.5),
    ("d + 1", "d1", "decimal", "d", lambda d: d + 1),
    ("CAST(d AS string)", "ds", "string", "d", lambda d: f"{d:.2f}"),
    ("n.a", "na", "bigint", "n", lambda n: n["a"]),
    ("n.b", "nb", "list of text", "n", lambda n: n["b"]),
    ("m['a']", "ma", "bigint", "m", lambda m: m.get("a")),
    ("hex(b)", "bh", "string", "b", lambda b: b.hex().upper()),
    ("concat(s, '|')", "sc", "string", "s", lambda s: f"{s}|"),
    ("length(s)", "sl", "bigint", "s", len),
]
KINDS["list of text"] = KINDS["list"]
CONDITION = {sql: test for sql, _, test in CONDITIONS}
EXPRESSION = {f"{sql} AS {name}": (name, column, means) for sql, name, _, column, means in EXPRESSIONS}


@dataclass(frozen=True)
class Where(Step):
    condition: str
    way: str  # "where", "channel", or "otherwise": the rows that are in no channel

    def declare(self, flow: Any, *streams: Any) -> Any:
        (stream,) = streams
        if self.way == "where":
            return stream.where(self.condition)
        channel = stream.channel(f"{self.name}_of", where=self.condition)
        return channel if self.way == "channel" else stream.otherwise(self.name)

    def expected(self, *rows: list[Row]) -> Given:
        test = CONDITION[self.condition]
        return {"": [row for row in rows[0] if test(row.values) != (self.way == "otherwise")]}

    def __str__(self) -> str:
        return f"{self.name} = {self.inputs[0]}.{self.way}({self.condition!r})"


@dataclass(frozen=True)
class Select(Step):
    expressions: tuple[str, ...]

    def declare(self, flow: Any, *streams: Any) -> Any:
        return streams[0].select(*self.expressions)

    def expected(self, *rows: list[Row]) -> Given:
        return {"": [row.with_values(self._selected(row.values)) for row in rows[0]]}

    def _selected(self, values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for expression in self.expressions:
            if expression not in EXPRESSION:
                found[expression] = values[expression]
                continue
            name, column, means = EXPRESSION[expression]
            found[name] = None if values[column] is None else means(values[column])
        return found

    def __str__(self) -> str:
        return f"{self.name} = {self.inputs[0]}.select({', '.join(map(repr, self.expressions))})"


@dataclass(frozen=True)
class Union(Step):
    tags: tuple[str, ...]

    def declare(self, flow: Any, *streams: Any) -> Any:
        return flow.union(*streams, tag="tag")

    def expected(self, *rows: list[Row]) -> Given:
        names = [name for name in self.about[""].columns if name != "tag"]
        return {
            "": [
                replace(
                    row,
                    values={**{name: row.values.get(name) for name in names}, "tag": tag},
                    place=(number, *row.place),
                )
                for number, (tag, part) in enumerate(zip(self.tags, rows, strict=True))
                for row in part
            ]
        }

    def __str__(self) -> str:
        return f"{self.name} = flow.union({', '.join(self.inputs)}, tag='tag')"


@dataclass(frozen=True)
class Function(Step):
    """A user's function of a DataFrame that keeps all rows. ``way`` says how it is written."""

    way: str
    kept: tuple[str, ...]  # columns
    time: str

    def declare(self, flow: Any, *streams: Any) -> Any:
        (stream,) = streams
        new_time = self.about[""].time
        return stream.operator(
            self.function(), name=self.name, time=new_time if new_time != self.time else None
        )

    def function(self) -> Callable[[Any], Any]:
        kept, time, way = list(self.kept), self.time, self.way
        schema = ", ".join(
            f"`{name}` {KINDS[self.about[''].columns.get(name, 'timestamp')].ddl}" for name in kept
        )

        def selects(df: Any) -> Any:
            return df.select(*kept)

        def adds(df: Any) -> Any:
            return df.withColumn("same", df[time]).select(*kept)

        def aliases(df: Any) -> Any:
            return df.alias("own").select(*(f"own.{name}" for name in kept))

        def renames(df: Any) -> Any:
            return df.select(*kept).withColumnRenamed(time, "renamed")

        def unites(df: Any) -> Any:
            some = df.select(*kept)
            return some.where(f"second({time}) % 2 = 0").union(some.where(f"second({time}) % 2 = 1"))

        def explodes(df: Any) -> Any:
            return df.selectExpr(*kept, "explode(array(1L, 2L)) AS part")

        def maps(df: Any) -> Any:
            def unchanged(batches: Any) -> Any:
                yield from batches

            return df.select(*kept).mapInArrow(unchanged, schema)

        def maps_in_pandas(df: Any) -> Any:
            def unchanged(batches: Any) -> Any:
                yield from batches

            return df.select(*kept).mapInPandas(unchanged, schema)

        made: Callable[[Any], Any] = locals()[way]
        return made

    def expected(self, *rows: list[Row]) -> Given:
        found = []
        for row in rows[0]:
            values = {name: row.values[name] for name in self.kept}
            if self.way == "renames":
                values["renamed"] = values.pop(self.time)
            if self.way == "explodes":
                found += [
                    Row({**values, "part": part}, row.time, (*row.place, part), row.watermark)
                    for part in (1, 2)
                ]
            else:
                found.append(row.with_values(values))
        return {"": found}

    def __str__(self) -> str:
        return f"{self.name} = {self.inputs[0]}.operator({self.way} {', '.join(self.kept)})"


@dataclass(frozen=True)
class Split(Step):
    """A function with two channels that have different columns."""

    condition: str
    kept: tuple[tuple[str, ...], tuple[str, ...]]

    def declare(self, flow: Any, *streams: Any) -> Any:
        first, second = (list(one) for one in self.kept)
        condition = self.condition

        def splits(df: Any) -> Any:
            return {
                "yes": df.where(condition).select(*first),
                "no": df.where(f"NOT coalesce({condition}, false)").select(*second),
            }

        return streams[0].operator(splits, channels=["yes", "no"], name=self.name)

    def expected(self, *rows: list[Row]) -> Given:
        test = CONDITION[self.condition]
        found: Given = {"yes": [], "no": []}
        for row in rows[0]:
            way = "yes" if test(row.values) else "no"
            kept = self.kept[way == "no"]
            found[way].append(row.with_values({name: row.values[name] for name in kept}))
        return found

    def __str__(self) -> str:
        yes, no = self.kept
        return f"{self.name} = {self.inputs[0]}.operator(channels yes {yes} if {self.condition}, no {no})"


@dataclass(frozen=True)
class Loop(Step):
    """A topic that the flow writes and reads again: every row goes round ``ROUNDS`` times."""

    ROUNDS = 2

    def declare(self, flow: Any, *streams: Any) -> Any:
        (stream,) = streams
        stream.select("k", "v", f"{self.about[''].time}", "0L AS hop").to_topic(self.name)
        time = self.about[""].time
        loop = flow.source(self.name, schema=f"k string, v bigint, {time} timestamp, hop bigint", time=time,
                           lateness="1 hour", feedback=True, name=self.name)  # fmt: skip
        again = loop.where(f"hop < {self.ROUNDS}")
        again.select("k", "v", time, "hop + 1 AS hop").to_topic(self.name)
        return loop

    def expected(self, *rows: list[Row]) -> Given:
        time = self.about[""].time
        return {
            "": [
                Row({**{name: row.values[name] for name in ("k", "v", time)}, "hop": hop}, row.time)
                for row in rows[0]
                for hop in range(self.ROUNDS + 1)
            ]
        }

    def __str__(self) -> str:
        return f"{self.name} = a feedback topic of {self.inputs[0]}, {self.ROUNDS} times round"


def garbage(columns: dict[str, str], time: str, values: dict[str, Any]) -> list[bytes]:
    """Records that do not parse."""
    found = [b"nope", b'{"k": ', b"[1]", b"\xff"]
    if time in columns:
        found.append(record(columns, {**values, time: None}))
    return found


def about_source(columns: dict[str, str], time: str, lateness: int) -> dict[str, About]:
    if time == "log":
        columns = {**columns, "log_time": "timestamp"}
        time = "log_time"
    return {"": About(dict(columns), time, lateness=lateness), "rejected": About({"value": "raw"}, "")}
