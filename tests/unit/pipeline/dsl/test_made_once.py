"""Streams beside another, such as ``.late``: each is made once, however often it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import Processor, Topology, step
from millstream.pipeline.dsl.streams import Stream

ROWS = "id string, of string, at timestamp"


class Echo(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.emit(n=1)


def _declared() -> dict[str, Any]:
    """One of everything that has streams beside it."""
    flow = Topology("t")
    one, two = (flow.source(topic, schema=ROWS, time="at") for topic in ("one", "two"))
    left, right = (flow.table(topic, schema=ROWS, key="id") for topic in ("left", "right"))

    @one.operator(channels=["good", "bad"])
    def split(df):  # type: ignore[no-untyped-def]
        return {"good": df, "bad": df}

    found = step("a", "of = 'a'"), step("b", "of = 'b'")
    return {
        "source": one,
        "table": left,
        "split": split,
        "window": one.window(by="id", opens="of = 'a'", timeout="1 m").agg(n="count(*)"),
        "pattern": one.pattern(by="id", steps=found, within="1 m", on_error="channel"),
        "join": one.join(two, on="id", within="1 m"),
        "lookup": one.join(left, on={"of": "id"}),
        "joined": left.join(right),
        "by foreign key": left.join(right, on={"of": "id"}),
        "gather": flow.gather(one=one, two=two, by="id", timeout="1 m"),
        "process": flow.process(
            [one, two],
            key="id",
            with_=Echo,
            output="n int",
            channels={"odd": "n int"},
            on_error="channel",
        ),
    }


@pytest.mark.parametrize(
    ("of", "read"),
    [
        ("source", lambda it: it.late),
        ("source", lambda it: it.ahead),
        ("source", lambda it: it.rejected),
        ("table", lambda it: it.rejected),
        ("table", lambda it: it.changes),
        ("split", lambda it: it.channel("good")),
        ("window", lambda it: it.late),
        ("window", lambda it: it.outside),
        ("pattern", lambda it: it.overflow),
        ("pattern", lambda it: it.timed_out),
        ("pattern", lambda it: it.failed),
        ("join", lambda it: it.late),
        ("join", lambda it: it.ahead),
        ("lookup", lambda it: it.late),
        ("joined", lambda it: it.late),
        ("by foreign key", lambda it: it.late),
        ("gather", lambda it: it.incomplete),
        ("gather", lambda it: it.duplicates),
        ("process", lambda it: it.channel("odd")),
        ("process", lambda it: it.failed),
    ],
)
def test_a_stream_beside_another_is_made_once(of: str, read: Callable[[Any], Stream]) -> None:
    stream = _declared()[of]
    assert read(stream).node is read(stream).node


def test_all_channels_of_an_operator_have_the_same_late_rows() -> None:
    declared = _declared()
    whole, processed = declared["gather"], declared["process"]
    assert whole.incomplete.late.node is whole.duplicates.late.node is whole.late.node
    assert processed.channel("odd").late.node is processed.late.node


def test_late_changes_of_a_join_by_foreign_key_are_those_of_both_tables() -> None:
    late = _declared()["by foreign key"].late.node
    assert [part.name for part in late.inputs] == ["assigned 1.late", f"{late.name}.right"]
    assert [part.channel_name for part in late.inputs] == ["late.0", "late.1"]
