"""Rows that were kept with other columns than there are now."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.graph import Stateful
from millstream.pipeline.kernel.state.containers import WaitingRows
from millstream.pipeline.kernel.state.fitting import fitted, holds, unfit
from millstream.pipeline.kernel.state.layouts import Layouts
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.planning.edited_columns import check_columns, to_text

OLD = pa.schema([("k", pa.string()), ("v", pa.int32()), ("w", pa.decimal128(10, 2)), ("gone", pa.string())])
NEW = pa.schema(
    [("k", pa.string()), ("new", pa.list_(pa.int32())), ("w", pa.decimal128(12, 3)), ("v", pa.int64())]
)


def test_columns_come_go_and_widen() -> None:
    rows = pa.table({"k": ["a"], "v": [1], "w": [Decimal("1.50")], "gone": ["x"]}, schema=OLD)
    assert fitted(rows, NEW).to_pylist() == [{"k": "a", "new": None, "w": Decimal("1.500"), "v": 1}]
    assert fitted(rows, OLD) is rows
    assert unfit(OLD, NEW, 1, by_position=False) == []


@pytest.mark.parametrize(
    ("new", "old", "fits"),
    [
        (pa.int64(), pa.int8(), True), (pa.int8(), pa.int64(), False), (pa.float64(), pa.float32(), True),
        (pa.float32(), pa.float64(), False), (pa.decimal128(12, 2), pa.decimal128(10, 2), True),
        (pa.decimal128(10, 4), pa.decimal128(10, 2), False), (pa.string(), pa.int32(), False),
        (pa.list_(pa.int64()), pa.list_(pa.int32()), True), (pa.float64(), pa.int64(), False),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())]), False),
        (pa.date32(), pa.date32(), True),
    ],
)  # fmt: skip
def test_a_type_takes_the_place_of_another_if_it_has_all_its_values(new: Any, old: Any, fits: bool) -> None:
    assert holds(new, old) is fits
    if fits:
        pa.nulls(2, old).cast(new)


def test_what_can_not_be_carried_is_told() -> None:
    narrow = pa.schema([("k", pa.int64()), ("v", pa.int16()), ("w", pa.decimal128(10, 2))])
    assert unfit(OLD, narrow, 1, by_position=False) == [
        "the key 'k' was string; now int64",
        "the column 'v' was int32; now int16",
    ]
    assert unfit(OLD, NEW, 1, by_position=True) == ["the columns were v, w, gone; now new, w, v"]


def test_rows_that_wait_get_the_columns_of_now() -> None:
    order = dict(zip(WaitingRows.ORDER, ([5], [0], [0], [9]), strict=True))
    old = StateStore()
    old.waiting("rows", OLD).add(pa.table({**order, "k": ["a"], "v": [1], "w": [None], "gone": ["x"]}))
    new = StateStore()
    new.apply(old.changes())
    waiting = new.waiting("rows", NEW)
    there = waiting.rows()
    assert there is not None
    waiting.add(fitted(pa.table({**order, "k": ["b"], "v": [2]}), there.schema))
    given = waiting.let_go(10)
    assert given is not None
    assert [(row["k"], row["v"], row["new"]) for row in given.to_pylist()] == [("a", 1, None), ("b", 2, None)]


def test_a_tuple_is_read_by_the_columns_that_it_was_kept_with() -> None:
    store = StateStore()
    first = Layouts(store, "table", ["a", "b"])
    second = Layouts(store, "table", ["b", "c", "a"])
    assert (first.current, second.current) == (0, 1)
    assert second.fitted((1, 2), 0) == (2, None, 1)
    assert Layouts(store, "table", ["a", "b"]).current == 0


def operator(kind: str) -> Stateful:
    flow = Topology("evolving")
    source = flow.source("payments", schema="k string, v int, at timestamp", time="at")
    if kind == "window":
        return (
            source.window(by="k", size="1 minute", name="counted", engine="kernel").agg(n="sum(v)").node.state
        )
    return flow.gather(
        a=source, b=source.where("v > 1"), by="k", timeout="1 minute", name="counted"
    ).node.state


def test_a_job_is_refused_before_it_starts() -> None:
    kept = {"named counted": to_text([OLD, OLD])}
    with pytest.raises(
        TopologyError, match=r"(?s)'counted' keeps rows.*gone; now .*--reset-operator counted"
    ):
        check_columns(kept, {"named counted": (operator("gather"), (NEW, OLD))}, "here")
    check_columns(kept, {"named counted": (operator("gather"), (OLD, OLD))}, "here")
    check_columns(kept, {"another": (operator("gather"), (NEW, NEW))}, "here")


def test_of_a_window_only_the_keys_and_what_aggregates_take_matters() -> None:
    old, new = (
        pa.schema([("k", pa.string()), ("millstream_0", kind), ("v", seen)])
        for kind, seen in ((pa.int32(), pa.int32()), (pa.int64(), pa.string()))
    )
    check_columns({"counted": to_text([old])}, {"counted": (operator("window"), (new,))}, "here")
    with pytest.raises(TopologyError, match="'millstream_0' was int64; now int32"):
        check_columns({"counted": to_text([new])}, {"counted": (operator("window"), (old,))}, "here")
