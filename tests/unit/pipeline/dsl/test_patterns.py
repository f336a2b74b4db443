"""Patterns as they are written: what is understood, and what is refused, with the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream import Topology, absent, step
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.dsl.streams import PatternStream, Source

SMALL, BIG = step("small", "eur < 2"), step("big", "eur > 500")


def payments(flow: Topology | None = None) -> Source:
    flow = flow or Topology("fraud")
    return flow.source("payments", schema="card string, eur double, paid_at timestamp", time="paid_at")


def declared(*steps: Any, **how: Any) -> PatternStream:
    return payments().pattern(**{"by": "card", "within": "5 minutes", "steps": list(steps), **how})


def test_a_match_has_its_keys_its_times_and_the_events_of_every_step() -> None:
    found = declared(SMALL.times(3), absent("refund", "eur < 0"), BIG)
    assert found.columns == ("card", "match_start", "match_end", "small", "big", "time_basis")
    assert found.node.about() == "small x3 then no refund then big"
    assert found.node.time is not None
    assert (found.node.time.column, found.node.time.basis) == ("match_end", "event time (paid_at)")


def test_steps_are_joined_by_an_operator_or_stand_in_a_list() -> None:
    joined = declared(SMALL.times(3) >> absent("refund", "eur < 0") >> BIG)
    listed = declared(SMALL.times(3), absent("refund", "eur < 0"), BIG)
    assert joined.node.state.plan.shape() == listed.node.state.plan.shape()


def test_measures_take_the_place_of_the_events() -> None:
    found = declared(SMALL, BIG, give={"n": "count(small)", "spent": "big.eur"})
    assert found.columns == ("card", "match_start", "match_end", "n", "spent", "time_basis")
    (taken,) = found.node.state.inputs
    assert taken.columns is not None
    assert "*" not in taken.columns


def test_strict_means_that_nothing_comes_in_between() -> None:
    rules = declared(SMALL.times(3), BIG, strict=True).node.state.plan.steps  # type: ignore[attr-defined]
    assert [(rule.directly, rule.consecutive) for rule in rules] == [(False, True), (True, True)]


def test_channels_are_called_after_the_pattern_also_when_its_variable_names_it(tmp_path: Path) -> None:
    file = tmp_path / "fraud.py"
    file.write_text(
        "from millstream import Topology, step\n"
        "flow = Topology('fraud')\n"
        "payments = flow.source('payments', schema='card string, eur double, at timestamp', time='at')\n"
        "testing = payments.pattern(by='card', within='1 minute', steps=step('big', 'eur > 5'))\n"
        "testing.overflow.to_topic('overflow')\n"
        "testing.timed_out.to_topic('timed_out')\n"
    )
    flow = load_topology(file)
    names = [stream.name for stream in flow.streams]
    assert names == ["payments", "testing", "testing.overflow", "testing.timed_out"]
    assert flow.streams[1].state.name == "testing"  # type: ignore[union-attr]


def test_timed_out_is_told_only_if_it_is_asked_for() -> None:
    found = declared(SMALL, BIG)
    assert not found.node.state.plan.timed_out  # type: ignore[attr-defined]
    assert found.timed_out.node is found.timed_out.node
    assert found.node.state.plan.timed_out  # type: ignore[attr-defined]


def _wrong(make: Callable[[], Any], says: str) -> Any:
    return pytest.param(make, says, id=says[:40])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        _wrong(lambda: declared(SMALL, SMALL), "two steps of this pattern are called 'small'"),
        _wrong(lambda: declared(absent("refund", "eur < 0"), BIG), "can't begin with absent"),
        _wrong(lambda: declared(SMALL.optional(), BIG.optional()), "all steps of this pattern are optional"),
        _wrong(lambda: declared(SMALL, BIG.optional()), "the last step, 'big', is optional"),
        _wrong(lambda: declared(SMALL, within=None), "needs within="),
        _wrong(lambda: declared(SMALL, within="soon"), "within: 'soon' is not a duration"),
        _wrong(lambda: declared(), "at least one step"),
        _wrong(lambda: declared("eur < 2"), "is neither"),
        _wrong(lambda: SMALL >> "eur < 2", "is not one"),  # type: ignore[operator]
        _wrong(lambda: declared(SMALL, by="crad"), "did you mean 'card'"),
        _wrong(lambda: declared(step("small", "euro < 2")), "did you mean 'eur'"),
        _wrong(lambda: declared(step("card", "eur < 2")), "two columns 'card'"),
        _wrong(lambda: declared(SMALL, after_match="skip"), "'skip past last', 'skip to next', 'all'"),
        _wrong(lambda: declared(SMALL, on_error="ignore"), "'channel'"),
        _wrong(lambda: declared(SMALL, max_partial=0), "at least 1"),
        _wrong(lambda: declared(SMALL, give={}), "at least one measure"),
        _wrong(lambda: declared(SMALL, give={"n": "count(big)"}), "there is no step 'big'"),
        _wrong(lambda: declared(SMALL, give={"n": "median(small.eur)"}), "median is not one of"),
        _wrong(lambda: declared(SMALL, give={"n": "sum(small)"}), "name the column"),
        _wrong(lambda: declared(SMALL, give={"n": "small.euro"}), "did you mean 'eur'"),
        _wrong(lambda: declared(SMALL, give={"n": "small.card"}), "card is a key"),
        _wrong(lambda: declared(SMALL, give={"n": "1 + 1"}), "is not a measure"),
        _wrong(lambda: declared(SMALL).failed, "on_error='channel'"),
        _wrong(lambda: step("no good", "eur < 2"), "can't be a step's name"),
        _wrong(lambda: step("small"), "needs a condition"),
        _wrong(lambda: step("small", where=lambda event: True), "two arguments"),  # type: ignore[arg-type, misc]
        _wrong(lambda: step("small", lambda event: True), "give a function as where="),  # type: ignore[arg-type]
        _wrong(lambda: SMALL.times(0), "numbers of at least 1"),
        _wrong(lambda: SMALL.times(3, 2), "3 to 2 events"),
        _wrong(lambda: absent("refund", "eur < 0").times(2), "takes no events"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused_at_its_line(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TopologyError, match=r"test_patterns\.py:\d+: ") as refused:
        make()
    assert says in str(refused.value)


def test_a_stream_without_a_time_can_have_no_pattern() -> None:
    source = Topology("fraud").source("payments", schema="card string, eur double")
    with pytest.raises(TopologyError, match="which time its events have"):
        source.pattern(by="card", within="1 minute", steps=SMALL)
