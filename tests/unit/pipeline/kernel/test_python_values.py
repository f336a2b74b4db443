"""Columns as Python's values: Arrow's own way, only sooner."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.kernel.python_values import values_of

times = st.none() | st.datetimes()


@pytest.mark.parametrize("unit", ["us", "ns", "ms", "s"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@given(st.lists(st.none() | st.integers(-(10**9), 10**9)))
def test_times_are_those_that_arrow_gives(unit: str, zone: str | None, counts: list[int | None]) -> None:
    column = pa.array(counts, pa.int64()).cast(pa.timestamp(unit, zone))
    wanted = column.cast(pa.timestamp("us", zone), safe=False).to_pylist()
    assert values_of(column) == wanted
    assert values_of(pa.chunked_array([column, column])) == wanted * 2


@given(st.lists(times))
def test_the_whole_range_of_datetimes(given: list[datetime | None]) -> None:
    wanted = [None if value is None else value.replace(tzinfo=UTC) for value in given]
    assert values_of(pa.array(wanted, pa.timestamp("us", "UTC"))) == wanted
    assert values_of(pa.array(given, pa.timestamp("us"))) == given


def test_other_columns_are_as_arrow_gives_them() -> None:
    for column in (
        pa.array([1, None]),
        pa.array(["a", None]),
        pa.array([[1], None]),
        pa.array([], pa.bool_()),
    ):
        assert values_of(column) == column.to_pylist()
