"""A checkpoint is bound by batches, not by attempts, and keeps what operators know their sources by."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.run.checkpoint.checkpoint import Checkpoint

SCHEMA = "card string, v int, paid_at timestamp"


def flow_of(aggregate: str = "count(*)", *, others: tuple[str, ...] = (), engine: str = "kernel") -> Topology:
    flow = Topology("bound")
    for topic in others:
        flow.source(topic, schema=SCHEMA, time="paid_at").to_topic(f"{topic}-copy")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    payments.window(by="card", size="1 minute", engine=engine).agg(n=aggregate).to_topic("counts")
    return flow


def started(path: Path, flow: Topology, *, batches: int) -> None:
    """What a run leaves that was planned, and perhaps came to a batch."""
    checkpoint = Checkpoint(str(path))
    checkpoint.bind(checkpoint.claim(flow))
    for query in checkpoint.claim(flow).plan.queries:
        offsets = path / "queries" / query.name / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        for batch in range(batches):
            (offsets / str(batch)).write_text("")


def test_a_run_that_was_only_planned_binds_nothing(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path)).claim(flow_of("cuont(*)", engine="native"))
    assert not (tmp_path / "topology.json").exists()
    started(tmp_path, flow_of("cuont(*)", engine="native"), batches=0)
    Checkpoint(str(tmp_path)).claim(flow_of("count(*)", engine="native"))


def test_one_that_came_to_a_batch_does(tmp_path: Path) -> None:
    started(tmp_path, flow_of("count(*)"), batches=1)
    with pytest.raises(TopologyError, match=r"(?s)had aggregates.*--reset-operator NAME.*name="):
        Checkpoint(str(tmp_path)).claim(flow_of("sum(v)"))


def test_advice_about_operators_is_given_only_where_one_has_changed(tmp_path: Path) -> None:
    started(tmp_path, flow_of(others=("a",)), batches=1)
    with pytest.raises(
        TopologyError, match="which reads a, is gone\nChange the file back; or give a"
    ) as gone:
        Checkpoint(str(tmp_path)).claim(flow_of())
    assert "--reset-operator" not in str(gone.value)


def test_state_is_given_up_where_that_is_asked_for(tmp_path: Path) -> None:
    started(tmp_path, flow_of("count(*)"), batches=1)
    claim = Checkpoint(str(tmp_path)).claim(flow_of("sum(v)"), reset=["window 1"])
    assert [list(resets.values()) for resets in claim.resets.values()] == [[1]]
    Checkpoint(str(tmp_path)).bind(claim)
    again = Checkpoint(str(tmp_path)).claim(flow_of("sum(v)"))
    assert again.resets == claim.resets


def test_a_source_that_is_added_before_others_does_not_take_their_place(tmp_path: Path) -> None:
    started(tmp_path, flow_of(others=("a",)), batches=1)
    first = flow_of(others=("a",))
    claim = Checkpoint(str(tmp_path)).claim(first)
    assert {source.name: first.number_of(source) for source in first.sources} == {"a": 0, "payments": 1}
    second = flow_of(others=("b", "a"))
    again = Checkpoint(str(tmp_path)).claim(second)
    assert {source.name: second.number_of(source) for source in second.sources} == {
        "b": 2,
        "a": 0,
        "payments": 1,
    }
    assert {query.name for query in claim.plan.queries} < {query.name for query in again.plan.queries}


def test_a_query_keeps_its_group(tmp_path: Path) -> None:
    started(tmp_path, flow_of(), batches=1)
    claim = Checkpoint(str(tmp_path)).claim(flow_of(others=("a",)))
    assert claim.groups == {"payments": "bound", "a": "bound.a"}
