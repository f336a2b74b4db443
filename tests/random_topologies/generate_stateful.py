"""Draws steps that keep state: windows, deduplications, processors, patterns, joins and gatherings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.random_topologies.drawing import KNOWN, Drawing, add_source, conditions
from tests.random_topologies.joins import Gather, Join, TableJoin, TableStep, joined_columns
from tests.random_topologies.keyed import Deduplicate, Pattern, Process
from tests.random_topologies.shape import About
from tests.random_topologies.windows import AGGREGATES, Window, about_window

_KEYS = ("string", "key", "bigint", "decimal", "binary", "timestamp", "boolean")


def _keys(drawing: Drawing, about: About) -> tuple[str, ...]:
    taken = ("k", about.time, "u", "window_start", "window_end")
    others = [name for name, kind in about.columns.items() if kind in _KEYS and name not in taken]
    return ("k", drawing.rng.choice(others)) if others and drawing.chance(0.3) else ("k",)


def add_window(drawing: Drawing) -> None:
    if (found := drawing.pick(lambda about: drawing.stateful(about) and bool(about.time))) is None:
        return
    name, about = found
    rng = drawing.rng
    in_order = about.ordered and not (drawing.ties and about.opaque)
    by = _keys(drawing, about)
    able = [
        one
        for one in AGGREGATES
        if all(about.columns.get(need) == KNOWN[need] for need in one.needs)
        and (in_order or not one.by_order)
    ]
    chosen = rng.sample(able, min(len(able), rng.choice([1, 1, 2, 3, 5])))
    prefix = f"a{len(drawing.steps)}_"
    aggregates = {f"{prefix}{number}": one.sql for number, one in enumerate(chosen)}
    first = next((alias for alias, one in zip(aggregates, chosen, strict=True) if one.kind == "bigint"), None)
    if first is not None and "v" not in by:
        aggregates = {("v" if alias == first else alias): sql for alias, sql in aggregates.items()}
    options: dict[str, Any]
    kind = rng.choice(["tumbling", "hopping", "moving", "gap", "opens"])
    if kind == "opens" and not (in_order and len(conditions(about)) > 1):
        kind = "gap"
    if kind == "moving":
        options = {"size": rng.choice([1, 10, 60]), "every": "event"}
    elif kind == "gap":
        options = {"gap": rng.choice([1, 5, 20])}
    elif kind == "opens":
        opens, closes = rng.sample(conditions(about), 2)
        options = {
            "opens": opens,
            "closes": closes,
            "timeout": rng.choice([5, 30]),
            "timeout_from": rng.choice(["first", "last"]),
        }
    else:
        options = {"size": rng.choice([10, 60])}
        if kind == "hopping":
            options["every"] = rng.choice([5, 10, 4]) if options["size"] == 60 else rng.choice([5, 10])
            if options["size"] % options["every"]:
                options["every"] = 5
        way = rng.choice(["final", "final", "update", "retract"])
        options["emit"] = "final" if way == "final" else "update"
        if way == "retract":
            options["retract"] = True
    if kind in ("tumbling", "hopping", "gap") and not (drawing.native and not about.opaque):
        options["engine"] = "kernel"
    step = Window(
        drawing.name("window"),
        (name,),
        about_window(about, by, aggregates),
        by,
        aggregates,
        options,
        named=drawing.chance(0.5),
    )
    drawing.add(step, ends=step.emit == "update")


def add_process(drawing: Drawing) -> None:
    def fits(about: About) -> bool:
        settled = (about.ordered or not drawing.ties) and not (about.opaque and drawing.ties)
        return (
            drawing.stateful(about) and about.columns.get("v") == "bigint" and settled and not about.derived
        )

    if (found := drawing.pick(fits)) is None:
        return
    name, about = found
    by = _keys(drawing, about)
    by = by if "v" not in by else ("k",)
    keys = {one: about.columns[one] for one in by}
    made = {
        "": About(
            {**keys, "what": "string", "n": "bigint", "total": "bigint", "since": "timestamp"},
            "since",
            ordered=False,
            derived=True,
        ),
        "thirds": About({**keys, "kept": "list"}, "", ordered=False, derived=True),
    }
    drawing.add(Process(drawing.name("process"), (name,), made, by, named=drawing.chance(0.5)))


def add_deduplicate(drawing: Drawing) -> None:
    def fits(about: About) -> bool:
        settled = about.ordered and not (about.opaque and drawing.ties)
        return drawing.stateful(about) and bool(about.time) and settled and not about.derived

    if (found := drawing.pick(fits)) is None:
        return
    name, about = found
    made = replace(about, ordered=False, derived=True)
    drawing.add(
        Deduplicate(
            drawing.name("once"),
            (name,),
            {"": made, "duplicates": made},
            _keys(drawing, about),
            drawing.rng.choice([1, 5, 30]),
            named=drawing.chance(0.5),
        )
    )


def add_pattern(drawing: Drawing) -> None:
    def fits(about: About) -> bool:
        settled = about.ordered and not (about.opaque and drawing.ties)
        return (
            drawing.stateful(about)
            and about.columns.get("v") == "bigint"
            and settled
            and not about.derived
            and len(conditions(about)) > 1
        )

    if (found := drawing.pick(fits)) is None:
        return
    name, about = found
    rng = drawing.rng
    first, second = rng.sample(conditions(about), 2)
    way = rng.choice(["then", "then", "none"])
    columns = {
        "k": about.columns["k"],
        "match_start": "timestamp",
        "match_end": "timestamp",
        "v1": "bigint",
        "t1": "timestamp",
        **({"v2": "bigint"} if way == "then" else {}),
    }
    made = {"": About(columns, "match_end", ordered=False, derived=True), "late": about}
    after = "skip to next" if way == "none" else rng.choice(["skip to next", "skip past last"])
    drawing.add(
        Pattern(
            drawing.name("pattern"),
            (name,),
            made,
            ("k",),
            first,
            second,
            way,
            rng.choice([3, 15, 60]),
            after,
            named=drawing.chance(0.5),
        )
    )


def add_join(drawing: Drawing) -> None:
    def fits(about: About) -> bool:
        return drawing.stateful(about) and bool(about.time) and "join_time" not in about.columns

    one, other = drawing.pick(fits), drawing.pick(fits)
    if (
        one is None
        or other is None
        or drawing.loops_state
        or one[0] == other[0]
        or one[1].columns["k"] != other[1].columns["k"]
    ):
        return
    (left, left_about), (right, right_about) = one, other
    columns = joined_columns(left_about, right_about, "k", "join_time")
    rng = drawing.rng
    within = rng.choice([(0, 5), (-5, 5), (-20, 0), (2, 30), (-1, 0)])
    made = {"": About(columns, "join_time", ordered=False, derived=True)}
    drawing.add(
        Join(
            drawing.name("joined"),
            (left, right),
            made,
            "k",
            within,
            rng.choice(["inner", "left", "right", "outer"]),
            rng.choice(["arrival", "time"]),
            (left_about, right_about),
            named=drawing.chance(0.5),
        )
    )


def add_table_join(drawing: Drawing) -> None:
    found = drawing.pick(
        lambda about: (
            drawing.stateful(about)
            and bool(about.time)
            and "join_time" not in about.columns
            and "w" not in about.columns
            and about.columns["k"] == "key"
        )
    )
    if found is None or drawing.loops_state:
        return
    tables = [step.name for step in drawing.steps if isinstance(step, TableStep)]
    if not tables:
        add_source(drawing, drawing.name("table"), table=True)
        tables = [drawing.steps[-1].name]
    name, about = found
    table = drawing.streams[tables[0]]
    made = {
        "": About(joined_columns(about, table, "k", "join_time"), "join_time", ordered=False, derived=True)
    }
    drawing.add(
        TableJoin(
            drawing.name("looked"),
            (name, tables[0]),
            made,
            drawing.rng.choice(["inner", "left"]),
            (about, table),
            named=drawing.chance(0.5),
        )
    )


def add_gather(drawing: Drawing) -> None:
    def fits(about: About) -> bool:
        return (
            drawing.stateful(about)
            and bool(about.time)
            and about.columns.get("v") == "bigint"
            and not drawing.ties
            and not about.derived
            and about.ordered
        )

    one, other = drawing.pick(fits), drawing.pick(fits)
    if one is None or other is None or drawing.loops_state or one[0] == other[0]:
        return
    made = {
        "": About(
            {"k": "key", "v_one": "bigint", "v_other": "bigint", "gather_time": "timestamp"},
            "",
            ordered=False,
            derived=True,
        ),
        "incomplete": About({"k": "key", "missing": "list of text"}, "", derived=True),
        "duplicates": About({"k": "key", "part": "string"}, "", derived=True),
    }
    drawing.add(
        Gather(
            drawing.name("gathered"),
            (one[0], other[0]),
            made,
            drawing.rng.choice([5, 30]),
            named=drawing.chance(0.5),
        )
    )
