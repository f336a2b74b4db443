"""Processors as they are declared: what is understood, and what is refused, with the line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from millstream import Processor, Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.streams import ProcessedStream, Source
from millstream.pipeline.planning.differences import differences
from millstream.pipeline.planning.plan import plan, shapes
from millstream.sqltypes.arrow import arrow_schema
from millstream.sqltypes.ddl import from_ddl


class Counts(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.emit(n=1)


class Limits(Counts):
    def __init__(self, most: int) -> None:
        self.most = most


def payments(columns: str = "card string, eur double, paid_at timestamp") -> Source:
    return Topology("fraud").source("payments", schema=columns, time="paid_at")


def declared(with_: Any = Counts, **how: Any) -> ProcessedStream:
    return payments().process(**{"key": "card", "with_": with_, "output": "card string, n bigint", **how})


def test_the_result_has_the_columns_of_its_output() -> None:
    found = declared()
    assert (found.columns, found.node.about(), found.node.time) == (("card", "n"), "Counts", None)


def test_an_instance_may_be_given_with_what_it_needs_to_know() -> None:
    assert declared(Limits(5)).node.state.plan.processor.most == 5  # type: ignore[attr-defined]


def test_output_may_be_a_dataclass() -> None:
    @dataclass
    class Found:
        card: str
        n: int

    assert declared(output=Found).columns == ("card", "n")


def test_channels_are_taken_by_name_each_once() -> None:
    found = declared(channels={"odd": "why string"})
    odd = found.channel("odd")
    assert odd.node is found.channel("odd").node
    assert odd.columns == ("why",)
    assert found.channel("many", where="n > 1").columns == ("card", "n")


def test_results_with_a_time_may_be_windowed_and_those_without_say_what_to_do() -> None:
    timed = declared(output="card string, at timestamp", time="at")
    assert timed.node.time is not None
    assert (timed.node.time.column, timed.node.time.basis) == ("at", "event time (paid_at)")
    with pytest.raises(TopologyError, match=r"process\(\.\.\., time='at'\)"):
        declared().process(key="card", with_=Counts, output="n bigint")


def test_several_streams_are_processed_as_one() -> None:
    flow = Topology("fraud")
    one = flow.source("payments", schema="card string, at timestamp", time="at")
    other = flow.source("limits", schema="card string, most int, at timestamp", time="at")
    found = flow.process([one, other], key="card", with_=Counts, output="n bigint")
    assert [taken.stream for taken in found.node.state.inputs] == [one.node, other.node]


class Newer(Counts):
    version = 2


class Migrates(Newer):
    def migrate(self, version: int, state: Any) -> Any:
        return state


def test_another_version_of_a_processor_is_refused_unless_it_carries_the_state_over() -> None:
    def shape(with_: Any) -> Any:
        stream = declared(with_, name="counted")
        stream.to_topic("counts")
        return shapes(plan(stream.node.flow))

    Newer.__qualname__ = Migrates.__qualname__ = "Counts"
    (changed,) = differences(shape(Counts), shape(Newer))
    assert "the stateful operator 'counted' had version 1; now 2 (a method migrate" in changed
    assert differences(shape(Counts), shape(Migrates)) == []
    assert differences(shape(Migrates), shape(Newer)) == []


def test_schemas_become_arrows() -> None:
    written = "a int, b decimal(10,2), c array<struct<x:string,`y,z`:map<string,array<double>>>>, d decimal"
    assert arrow_schema(from_ddl(written).fields) == pa.schema(
        {
            "a": pa.int32(),
            "b": pa.decimal128(10, 2),
            "c": pa.list_(
                pa.struct({"x": pa.string(), "y,z": pa.map_(pa.string(), pa.list_(pa.float64()))}),
            ),
            "d": pa.decimal128(10, 0),
        }
    )


class Nothing(Processor):
    pass


class OneArgument(Processor):
    def on_event(self, event: Any) -> None:  # type: ignore[override]
        pass


class Unversioned(Counts):
    version = "two"  # type: ignore[assignment]


def _wrong(make: Callable[[], Any], says: str) -> Any:
    return pytest.param(make, says, id=says[:40])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        _wrong(lambda: declared(print), "must be a subclass of millstream.Processor"),
        _wrong(lambda: declared(Processor), "must be a subclass of millstream.Processor"),
        _wrong(lambda: declared(Nothing), "Nothing has no on_event"),
        _wrong(lambda: declared(OneArgument), "OneArgument.on_event is called with 2 arguments"),
        _wrong(lambda: declared(Limits), "give an instance, with_=Limits(...)"),
        _wrong(lambda: declared(Unversioned), "must be a number of at least 1"),
        _wrong(lambda: declared(output="card strin"), "output: in the schema"),
        _wrong(lambda: declared(output="v variant"), "output: variant is not supported here"),
        _wrong(lambda: declared(channels={"late": "n int"}), "can't be a channel's name"),
        _wrong(lambda: declared(channels={"odd": "n it"}), "channel 'odd': in the schema"),
        _wrong(lambda: declared(time="n"), "must be a timestamp column"),
        _wrong(lambda: declared(ttl="a while"), "ttl: 'a while' is not a duration"),
        _wrong(lambda: declared(ttl_clock="wall"), "'event' or 'processing'"),
        _wrong(lambda: declared(max_state_bytes=0), "at least 1"),
        _wrong(lambda: declared(on_error="ignore"), "'channel'"),
        _wrong(lambda: declared(key="crad"), "did you mean 'card'"),
        _wrong(lambda: declared().channel("odd"), "has no channel 'odd'; it has none"),
        _wrong(lambda: declared().failed, "on_error='channel'"),
        _wrong(
            lambda: payments("card string, error string, paid_at timestamp").process(
                key="card", with_=Counts, output="n int", on_error="channel"
            ),
            "the stream has a column 'error'",
        ),
        _wrong(
            lambda: Topology("x").process([payments()], key="card", with_=Counts, output="n int"),
            "is not a stream of this topology",
        ),
    ],
)
def test_a_processor_that_can_not_run_is_refused_at_its_line(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TopologyError, match=r"test_processors\.py:\d+: ") as refused:
        make()
    assert says in str(refused.value)
