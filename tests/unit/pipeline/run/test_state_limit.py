"""The bound on state: said at half, and the end when it is exceeded; and how sizes are shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.run.reporting.progress import BatchProgress, OperatorStatus
from millstream.pipeline.run.state_limit import StateLimit


def progress(size: int, *, entries: int = 1, late: int = 0) -> BatchProgress:
    status = OperatorStatus(None, None, None, None, entries, size, late)
    return BatchProgress("payments", 7, 10, 0, {}, None, 100, 0, operators={"cards": status})


def test_half_of_the_bound_is_said_once_and_all_of_it_is_the_end() -> None:
    limit = StateLimit(1_000_000)
    assert limit.after(progress(400_000)) == []
    (said,) = limit.after(progress(600_000))
    assert "'cards' has grown to 1 MB, over half" in said
    assert limit.after(progress(700_000)) == []
    assert limit.exceeded is None
    limit.after(progress(2_000_000))
    assert "'cards' has grown to 2.0 MB, more than max_state allows (1.0 MB)" in str(limit.exceeded)
    assert 'state="disk"' in str(limit.exceeded)


def test_what_has_shrunk_may_be_said_again() -> None:
    limit = StateLimit(1_000_000)
    assert len(limit.after(progress(600_000))) == 1
    limit.after(progress(100_000))
    assert len(limit.after(progress(600_000))) == 1


def test_without_a_bound_nothing_is_said() -> None:
    limit = StateLimit(None)
    assert limit.after(progress(1 << 60)) == []
    assert limit.exceeded is None


@pytest.mark.parametrize(
    ("entries", "size", "shown"),
    [
        (7, 545, "7 keys 545 B"),
        (550_000, 7_100_000, "550k keys 7.1 MB"),
        (2_000_000, 3 * 10**9, "2M keys 3 GB"),
    ],
)
def test_a_line_tells_how_large_state_is(entries: int, size: int, shown: str) -> None:
    line = progress(size, entries=entries, late=12).line()
    assert f"state {shown}" in line
    assert "late 12" in line


def test_a_line_fits_the_terminal_and_json_has_every_figure() -> None:
    sinks = {f"topic results.of.operator.{number}": 1000 for number in range(6)}
    steps = {"ledger": 2.0, "send": 480.5}
    told = replace(progress(500, entries=3), rows_out=sinks, steps=steps)
    assert "results.of.operator.5 1,000" in told.line()
    assert len(told.line(80)) <= 80
    assert "out 6,000  " in told.line(80)
    found = json.loads(json.dumps(told.as_json()))
    assert found["rows_out"] == sinks
    assert found["steps_ms"] == steps
    assert found["operators"]["cards"]["keys"] == 3


def test_a_topology_says_where_its_state_is_kept_and_how_large_it_may_become() -> None:
    assert Topology("t").max_state == 2_000_000_000
    assert Topology("t", state="disk").max_state is None
    assert Topology("t", state="disk", max_state="1.5 TB").max_state == 1_500_000_000_000
    assert Topology("t", state="cassandra://a,b:9042/keep").state == "cassandra://a,b:9042/keep"


@pytest.mark.parametrize("state", ["rocksdb", "", "cassandra://host", "mysql://host/db", 7])
def test_anywhere_else_is_refused(state: object) -> None:
    with pytest.raises(TopologyError, match=r"state=.* is not 'memory', 'disk', 'postgresql://"):
        Topology("t", state=state)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", ["2", "lots", "0 MB", "2 minutes", 5])
def test_what_is_no_size_is_refused(size: object) -> None:
    with pytest.raises(TopologyError, match=r"max_state=.* is not a size"):
        Topology("t", max_state=size)  # type: ignore[arg-type]
