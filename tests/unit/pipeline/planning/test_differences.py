"""State belongs to what made it: which edits of a file carry it over, and what is said of the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from millstream import Processor, Topology, step
from millstream.core.errors import ConfigError
from millstream.pipeline.dsl.streams import Source
from millstream.pipeline.planning.differences import differences
from millstream.pipeline.planning.edited_queries import reset
from millstream.pipeline.planning.plan import Plan, plan, shapes

SCHEMA = "card string, shop string, v int, w int, paid_at timestamp"
Edit = Callable[[Topology, Source], Any]


class Limit(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.emit()


class Other(Limit):
    pass


class Carries(Limit):
    version = 2

    def migrate(self, version: int, state: Any) -> Any:
        return state


def topology(*lines: Edit, topic: str = "payments", **how: Any) -> Topology:
    flow = Topology("edited", **how)
    payments = flow.source(topic, schema=SCHEMA, time="paid_at", lateness="1 minute")
    for line in lines:
        line(flow, payments)
    return flow


def window(by: str = "card", size: str = "1 minute", to: str = "out", **how: Any) -> Edit:
    name, engine, condition = how.pop("name", None), how.pop("engine", "kernel"), how.pop("where", None)
    emit = how.pop("emit", "update")
    aggregates = how or {"n": "count(*)"}

    def line(flow: Topology, payments: Source) -> None:
        rows = payments if condition is None else payments.where(condition)
        rows.window(by=by, size=size, engine=engine, name=name, emit=emit).agg(**aggregates).to_topic(to)

    return line


def process(made: type[Processor], to: str = "out", key: str = "card", name: str | None = None) -> Edit:
    return lambda flow, payments: payments.process(
        key=key, with_=made, output="card string", name=name
    ).to_topic(to)


def pattern(condition: str, name: str | None = None, to: str = "out") -> Edit:
    steps = [step("small", condition), step("big", "v > 100")]
    return lambda flow, payments: payments.pattern(
        by="card", steps=steps, within="1 minute", name=name
    ).to_topic(to)


def edited(before: Topology, after: Topology) -> tuple[Plan, list[str]]:
    """How a file goes on from the checkpoint of another, and what is said against it."""
    kept = shapes(plan(before))
    made = plan(after, kept)
    return made, differences(kept, shapes(made))


def places(made: Plan) -> dict[str, list[Any]]:
    """What Spark sees: the operators of every query in the order of its plan."""
    return {
        name: [output["operators"] for output in shape["outputs"]] for name, shape in shapes(made).items()
    }


MANY = [
    window(to="by-card"),
    window(by="shop", to="by-shop"),
    window(mv="min(v)", mw="min(w)", to="least"),
    window(size="5 minutes", engine="native", to="spark-5"),
    window(size="7 minutes", engine="native", to="spark-7"),
    window(by="shop", engine="native", to="spark-shop"),
    process(Limit, to="limits"),
    process(Other, to="others"),
    pattern("v < 2", to="found"),
    lambda flow, payments: payments.select("card").to_topic("copy"),
]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_lines_does_not_matter(seed: int) -> None:
    shuffled = random.Random(seed).sample(MANY, len(MANY))
    made, said = edited(topology(*MANY), topology(*shuffled))
    assert said == []
    assert places(made) == places(plan(topology(*MANY)))
    for before, after in zip(plan(topology(*MANY)).queries, made.queries, strict=True):
        for old, new in zip(before.outputs, after.outputs, strict=True):
            sinks = [{route.sink.label for route in one.routes if route.output is output}
                     for one, output in ((before, old), (after, new))]  # fmt: skip
            assert sinks[0] == sinks[1]


def test_nor_does_the_order_of_aggregates_or_the_space_in_sql() -> None:
    old = window(mv="min(v)", mw="min( w )", where="v>1")
    assert edited(topology(old), topology(window(mw="min(w)", mv="min(v)", where="v > 1")))[1] == []


def test_a_new_sink_is_no_change() -> None:
    both: Edit = lambda flow, payments: (  # noqa: E731
        payments.window(by="card", size="1 minute", engine="kernel").agg(n="count(*)")
        .to_topic("out").to_topic("more").where("n > 5").to_topic("many")
    )  # fmt: skip
    made, said = edited(topology(window()), topology(both))
    assert said == []
    assert len(made.queries) == 1
    assert places(made) == places(plan(topology(window())))


@pytest.mark.parametrize(
    "extra", [window(by="shop", to="more"), window(size="9 minutes", engine="native", to="more"),
              process(Limit, to="more"), pattern("v < 7", to="more")],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_new_operator_gets_a_query_of_its_own_and_leaves_the_others_alone(extra: Edit, first: bool) -> None:
    made, said = edited(topology(*MANY), topology(*([extra, *MANY] if first else [*MANY, extra])))
    assert said == []
    old = places(plan(topology(*MANY)))
    now = places(made)
    assert {name: now[name] for name in old} == old
    assert list(now) == [*old, "payments.2"]
    again, said = edited_from(made, topology(*MANY, extra))
    assert said == []
    assert places(again) == now


def edited_from(made: Plan, after: Topology) -> tuple[Plan, list[str]]:
    kept = shapes(made)
    again = plan(after, kept)
    return again, differences(kept, shapes(again))


def test_the_first_stateful_operator_does_not_join_a_query_without_state() -> None:
    copy = MANY[-1]
    made, said = edited(topology(copy), topology(window(), copy))
    assert said == []
    assert [[sink.label for sink in query.sinks] for query in made.queries] == [["topic copy"], ["topic out"]]


def test_a_window_more_does_not_share_the_state_of_those_that_are_there() -> None:
    old = [window(size=size, engine="native", to=size[0]) for size in ("5 minutes", "7 minutes")]
    made, said = edited(topology(*old), topology(window(engine="native", to="1"), *old))
    assert said == []
    assert [len(output) for outputs in places(made).values() for output in outputs] == [2, 1]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (window(), window(by="shop"), """had keys [["card"]]; now [["shop"]]"""),
        (window(), window(size="2 minutes"), "had window 1 minute by card; now 2 minutes by card"),
        (window(), window(n="count(v)"), """had aggregates {"n": "count ( * )"}; now {"n": "count ( v )"}"""),
        (window(mv="min(v)", mw="min(w)"), window(mv="min(w)", mw="min(v)"), "had aggregates"),
        (window(), window(emit="final"), "had emit update; now final"),
        (window(), window(engine="native"), "was worked out by the kernel; now by Spark"),
        (window(engine="native"), window(size="3 minutes", engine="native"), "had window 1 minute by card"),
        (window(where="v > 1"), window(where="v > 2"), "payments, where v > 1; now from payments"),
        (process(Limit), process(Other), "had processor Limit; now Other (with name= for both, a method"),
        (process(Limit, name="p"), process(Other, name="p"), "had processor Limit; now Other"),
        (process(Limit, key="card"), process(Limit, key="shop"), """had keys [["card"]]"""),
        (pattern("v < 2"), pattern("v < 3"), "took its rows from payments"),
        (window(), MANY[-1], "(window) is gone"),
        (window(name="counted"), window(name="counted", by="shop"), "'counted' had keys"),
    ],
)  # fmt: skip
def test_what_made_the_state_is_not_replaced_in_silence(old: Edit, new: Edit, says: str) -> None:
    _, said = edited(topology(old), topology(new))
    assert says in "\n".join(said)


def test_a_name_keeps_state_where_rows_or_conditions_change() -> None:
    for old, new in (
        (window(name="counted"), window(name="counted", where="v > 2")),
        (pattern("v < 2", name="pairs"), pattern("v < 3", name="pairs")),
        (process(Limit, name="p"), process(Carries, name="p")),
    ):
        assert edited(topology(old), topology(new))[1] == []


def test_a_version_is_carried_over_by_migrate() -> None:
    class Same(Limit):
        version = 2

    Same.__qualname__ = "Limit"
    assert (
        "had version 1; now 2 (a method migrate"
        in edited(topology(process(Limit)), topology(process(Same)))[1][0]
    )
    Same.migrate = Carries.migrate  # type: ignore[attr-defined]
    assert edited(topology(process(Limit)), topology(process(Same)))[1] == []


def test_swapping_the_sinks_of_two_processors_swaps_no_state() -> None:
    old = topology(process(Limit, to="a"), process(Other, to="b"))
    made, said = edited(old, topology(process(Limit, to="b"), process(Other, to="a")))
    assert said == []
    assert places(made) == places(plan(old))


def test_renamed_variables_do_not_matter() -> None:
    old, new = topology(window()), topology(window())
    for flow, name in ((old, "bursts"), (new, "peaks")):
        flow.rename(next(stream for stream in flow.streams if stream.kind == "window"), name)
    assert edited(old, new)[1] == []


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"buckets": 4}, "query 'payments' divided its keys into 8 buckets; now 4"),
        ({"state": "disk"}, "query 'payments' kept its state in memory; now disk"),
        ({"topic": "orders"}, "took its rows from payments; now from orders"),
    ],
)
def test_what_the_whole_query_depends_on(how: Any, says: str) -> None:
    assert says in "\n".join(edited(topology(window()), topology(window(), **how))[1])


def test_where_a_database_has_moved_to_does_not_matter() -> None:
    old, new = (topology(window(), state=f"postgresql://{host}/state") for host in ("one", "two"))
    assert edited(old, new)[1] == []


def test_an_operator_is_reset() -> None:
    old = topology(window(), process(Limit, to="limits"))
    new = topology(window(size="2 minutes"), process(Limit, to="limits"))
    for flow in (old, new):
        flow.rename(next(stream for stream in flow.streams if stream.kind == "window"), "bursts")
    kept = shapes(plan(old))
    operators = {
        one: shape for entry in shapes(plan(new)).values() for one, shape in entry["operators"].items()
    }
    reset(kept, ["bursts"], operators)
    made = plan(new, kept)
    assert differences(kept, shapes(made)) == []
    assert len(made.queries) == 1
    assert list(kept["payments"]["resets"].values()) == [1]
    with pytest.raises(ConfigError, match="the checkpoint has no stateful operator of that name"):
        reset(kept, ["burst"], operators)


def test_sparks_own_windows_can_not_be_reset() -> None:
    flow = topology(window(engine="native", name="counted"))
    kept = shapes(plan(flow))
    with pytest.raises(ConfigError, match="can't discard the state of one operator"):
        reset(kept, ["counted"], kept["payments"]["operators"])
