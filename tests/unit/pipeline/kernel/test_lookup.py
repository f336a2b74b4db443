"""Rows found by key and time: the same as a loop over all of them finds."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.joins.lookup import Lookup, hashes

KEYS = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.int32())])
row = st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([1, 2, None]), st.integers(0, 20))


def columns(rows: list[tuple[Any, ...]]) -> tuple[pa.Table, Any]:
    """A table of the keys and a number for each row, and the times."""
    keys = [pa.array([one[at] for one in rows], field.type) for at, field in enumerate(KEYS)]
    table = pa.table([*keys, pa.array(range(len(rows)))], names=["a", "b", "n"])
    return table, np.array([one[2] for one in rows], np.int64)


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(st.lists(row, min_size=1, max_size=8), max_size=6),
    asked=st.lists(row, min_size=1, max_size=8),
    span=st.integers(0, 8),
    now=st.integers(0, 20),
    collide=st.booleans(),
)
def test_what_is_found_is_what_a_loop_finds(
    batches: list[list[tuple[Any, ...]]],
    asked: list[tuple[Any, ...]],
    span: int,
    now: int,
    collide: bool,
) -> None:
    def hashed(table: pa.Table) -> Any:
        found = hashes(table.columns[:2])
        return np.zeros_like(found) if collide else found  # keys with one hash are told apart all the same

    lookup = Lookup(2)
    everything: list[tuple[Any, ...]] = []
    for batch in batches:
        table, times = columns(batch)
        numbered = table.set_column(2, "n", pa.array(range(len(everything), len(everything) + len(batch))))
        lookup.add(numbered, hashed(table), times, times)
        everything += batch
    lookup.forget(now)
    table, times = columns(asked)
    found = set()
    for which, rows, at in lookup.find(table, hashed(table), times - span, times + span):
        pairs = list(zip(which.tolist(), rows["n"].to_pylist(), strict=True))
        assert [everything[n][2] for _, n in pairs] == at.tolist()
        found |= {
            pair for pair in pairs if everything[pair[1]][2] >= now
        }  # what may be forgotten may be there
    assert found == {
        (which, n)
        for which, one in enumerate(asked)
        for n, other in enumerate(everything)
        if None not in one[:2] and one[:2] == other[:2] and abs(one[2] - other[2]) <= span and other[2] >= now
    }


def test_rows_that_have_gone_take_no_room() -> None:
    lookup = Lookup(2)
    for second in range(2000):
        table, times = columns([("x", 1, second)])
        lookup.add(table, hashes(table.columns[:2]), times, times + 5)
        lookup.forget(second)
    assert sum(len(run) for run in lookup._runs) <= 16


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.bool_(), True, False),
        (pa.float64(), 1.5, -1.5),
        (pa.date32(), datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
        (pa.timestamp("us", tz="UTC"), 5, 6),
        (pa.decimal128(10, 2), decimal.Decimal("1.20"), decimal.Decimal("1.21")),
        (pa.binary(), b"a", b"b"),
    ],
)
def test_keys_of_any_plain_type_have_hashes(kind: pa.DataType, one: Any, other: Any) -> None:
    found = hashes([pa.chunked_array([[one], [other, None], [one]], kind)]).tolist()
    assert found[0] == found[3] != found[1]
