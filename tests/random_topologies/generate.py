"""Draws a case from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.random_topologies.case import Case
from tests.random_topologies.drawing import KNOWN, Drawing, add_source, conditions, kept_columns
from tests.random_topologies.generate_stateful import (
    add_deduplicate,
    add_gather,
    add_join,
    add_pattern,
    add_process,
    add_table_join,
    add_window,
)
from tests.random_topologies.joins import Gather, Join, TableJoin, TableStep
from tests.random_topologies.shape import About, Step
from tests.random_topologies.sinks import TopicSink, ViewSink
from tests.random_topologies.stateless import (
    EXPRESSIONS,
    Function,
    Loop,
    Record,
    Select,
    SourceStep,
    Split,
    Union,
    Where,
)
from tests.random_topologies.windows import Window

_OPAQUE = ("unites", "maps", "maps_in_pandas")


def draw(seed: int, *, on_spark: bool = False) -> Case:
    rng = Random(seed)
    late = rng.random() < 0.4
    drawing = Drawing(
        rng, late, ties=rng.random() < 0.5, native=not late and rng.random() < 0.4, on_spark=on_spark
    )
    for number in range(rng.choice([1, 1, 2])):
        add_source(drawing, f"in{number}")
    wanted = rng.choice([1, 2, 3, 3, 4, 5, 6])
    for _ in range(40):
        if len(drawing.steps) >= wanted + 1:
            break
        rng.choice(_STEPS)(drawing)
    _sinks(drawing)
    records = _interleaved(rng, [step for step in drawing.steps if isinstance(step, SourceStep)])
    first = sum(step.partitions for step in drawing.steps if isinstance(step, SourceStep))
    cuts = sorted(rng.sample(range(first, len(records)), min(rng.randrange(6), len(records) - first)))
    guarantee = "exactly-once" if rng.random() < 0.5 else "at-least-once"
    return Case(
        seed, late, guarantee, tuple(drawing.steps), tuple(drawing.sinks), tuple(records), tuple(cuts)
    )


def _interleaved(rng: Random, sources: list[SourceStep]) -> list[tuple[str, Record]]:
    """The first records of all partitions, then all others: time can't wait for an unknown partition."""
    firsts = [(one.name, record) for one in sources for record in one.records[: one.partitions]]
    left = {one.name: list(one.records[one.partitions :]) for one in sources}
    rest = []
    while any(left.values()):
        name = rng.choice([name for name, own in left.items() if own])
        rest.append((name, left[name].pop(0)))
    return firsts + rest


# ---- steps ----------------------------------------------------------------------------------------------


def _where(drawing: Drawing) -> None:
    if (found := drawing.pick(lambda about: bool(conditions(about)))) is None:
        return
    name, about = found
    way = drawing.rng.choice(["where", "where", "channel", "otherwise"])
    if any(isinstance(one, Where) and one.inputs == (name,) and one.way != "where" for one in drawing.steps):
        way = "where"  # a second channel would change what ``otherwise`` gives
    condition = drawing.rng.choice(conditions(about))
    drawing.add(Where(drawing.name("rows"), (name,), {"": about}, condition, way))


def _select(drawing: Drawing) -> None:
    if (found := drawing.pick(lambda about: True)) is None:
        return
    name, about = found
    columns = {one: about.columns[one] for one in kept_columns(drawing, about)}
    expressions = list(columns)
    for sql, new, kind, column, _ in EXPRESSIONS:
        fits = about.columns.get(column) == KNOWN[column]
        if fits and new not in about.columns and drawing.chance(0.3):
            columns[new] = kind
            expressions.append(f"{sql} AS {new}")
    step = Select(drawing.name("some"), (name,), {"": replace(about, columns=columns)}, tuple(expressions))
    drawing.add(step)


def _function(drawing: Drawing) -> None:
    if (found := drawing.pick(lambda about: bool(about.time))) is None:
        return
    name, about = found
    ways = ["selects", "adds", "aliases"]
    if not about.derived:
        ways += ["renames", "explodes", "unites", "maps", *(["maps_in_pandas"] if drawing.on_spark else [])]
    way = drawing.rng.choice(
        [
            one
            for one in ways
            if not (one in ("renames", "explodes") and {"renamed", "part"} & about.columns.keys())
        ]
    )
    kept = kept_columns(drawing, about)
    if way == "maps_in_pandas":  # pandas changes the type of numbers if some are null
        kept = tuple(
            one for one in kept if about.columns[one] in ("key", "string", "timestamp", "decimal", "binary")
        )
    columns = {one: about.columns[one] for one in kept}
    time = about.time
    if way == "renames":
        columns = {("renamed" if one == time else one): kind for one, kind in columns.items()}
        time = "renamed"
    if way == "explodes":
        columns = {**{one: kind for one, kind in columns.items() if one != "u"}, "part": "bigint"}
        kept = tuple(one for one in kept if one != "u")
    opaque = about.opaque or way in _OPAQUE
    ordered = about.ordered and way not in (*_OPAQUE, "explodes")
    made = replace(about, columns=columns, time=time, opaque=opaque, ordered=ordered)
    drawing.add(Function(drawing.name("made"), (name,), {"": made}, way, kept, about.time))


def _split(drawing: Drawing) -> None:
    found = drawing.pick(lambda about: bool(conditions(about)) and not about.derived)
    if found is None:
        return
    name, about = found
    kept = (kept_columns(drawing, about), kept_columns(drawing, about))
    made = {
        word: replace(about, columns={one: about.columns[one] for one in own}, opaque=True)
        for word, own in zip(("yes", "no"), kept, strict=True)
    }
    drawing.add(Split(drawing.name("split"), (name,), made, drawing.rng.choice(conditions(about)), kept))


def _union(drawing: Drawing) -> None:
    names = {step.name for step in drawing.steps if isinstance(step, SourceStep | Function)}
    able = {
        name: about
        for name, about in drawing.streams.items()
        if name in names and not about.of_table and not about.derived and "tag" not in about.columns
    }
    pairs = [
        (one, other)
        for one in able
        for other in able
        if one < other
        and able[one].time == able[other].time
        and able[one].lateness == able[other].lateness
        and _agree(able[one], able[other])
    ]
    if not pairs:
        return
    one, other = drawing.rng.choice(pairs)
    columns = {**able[one].columns, **able[other].columns, "tag": "string"}
    columns.pop("u", None)  # no longer unique
    about = About(
        columns,
        able[one].time,
        ordered=not drawing.ties and able[one].ordered and able[other].ordered,
        opaque=able[one].opaque or able[other].opaque,
        lateness=able[one].lateness,
    )
    drawing.add(Union(drawing.name("all"), (one, other), {"": about}, (one, other)))


def _agree(one: About, other: About) -> bool:
    return all(other.columns.get(name, kind) == kind for name, kind in one.columns.items())


def _loop(drawing: Drawing) -> None:
    found = drawing.pick(
        lambda about: (
            about.columns.get("v") == "bigint"
            and about.columns.get("k") == "key"
            and bool(about.time)
            and about.time != "log_time"
        )
    )
    if found is None or any(isinstance(step, Loop) for step in drawing.steps):
        return
    name, about = found
    if about.derived:
        # At the end of the input, an operator that reads a result both directly and from a topic has its time
        # advanced past the result.
        if any(isinstance(step, Join | TableJoin | Gather) for step in drawing.steps):
            return
        drawing.loops_state = True
    made = About(
        {"k": "key", "v": "bigint", about.time: "timestamp", "hop": "bigint"},
        about.time,
        ordered=False,
        opaque=True,
        lateness=3600,
    )
    drawing.add(Loop(drawing.name("loop"), (name,), {"": made}))


_STEPS: list[Callable[[Drawing], None]] = [
    _where,
    _select,
    _function,
    _function,
    _split,
    _union,
    add_window,
    add_window,
    add_window,
    add_process,
    add_deduplicate,
    add_pattern,
    add_join,
    add_join,
    add_table_join,
    add_gather,
    _loop,
]


# ---- sinks ----------------------------------------------------------------------------------------------


def _sinks(drawing: Drawing) -> None:
    used = {name for step in drawing.steps for name in step.inputs}
    for step in drawing.steps:
        for which, about in step.about.items():
            name = f"{step.name}.{which}" if which else step.name
            if about.of_table or (isinstance(step, TableStep) and which):
                continue
            topic = f"out-{step.name}{f'-{which}' if which else ''}"
            if which == "rejected":
                drawing.sinks.append(TopicSink(topic, name, about, "raw"))
            elif which in ("late", "outside"):
                if _shows(drawing, step, which):
                    drawing.sinks.append(TopicSink(topic, name, about, "all"))
            elif name not in used or drawing.chance(0.5):
                drawing.sinks.append(_topic(topic, name, about, step))
            if not which and drawing.chance(0.4) and (view := _view(drawing, step, name, about)) is not None:
                drawing.sinks.append(view)


def _shows(drawing: Drawing, step: Step, which: str) -> bool:
    if not isinstance(step, Window):
        return False
    if which == "outside":
        return "opens" in step.options
    return not drawing.native and "watermark" not in drawing.streams and drawing.chance(0.6)


def _topic(topic: str, name: str, about: About, step: Step) -> TopicSink:
    if isinstance(step, Window) and step.emit == "update":
        way = "net" if step.options.get("retract") else "latest"
        return TopicSink(topic, name, about, way, (*step.by, "window_start"))
    return TopicSink(topic, name, about, "all")


def _view(drawing: Drawing, step: Step, name: str, about: About) -> ViewSink | None:
    rng = drawing.rng
    able = [one for one, kind in about.columns.items() if kind not in ("map", "raw", "list", "list of text")]
    if isinstance(step, Window) and step.is_tumbling and not step.options.get("retract"):
        return ViewSink(f"view_{step.name}", name, about, step.by, "window_end", None)
    if "u" in about.columns and not about.derived and about.time:
        keys = tuple(rng.sample([one for one in able if one != "u"], rng.choice([1, 1, 2])))
        delete_when = rng.choice([None, *conditions(about)])
        return ViewSink(f"view_{step.name}", name, about, keys, "u", delete_when)
    return None
