"""How queries are started on a slow machine, by queries that the test holds: no Spark."""

from __future__ import annotations

import threading
from typing import Any

from millstream.pipeline.spark.query_starts import ATTEMPTS, QueryStarter, in_turn

SLOW = "org.apache.spark.SparkException: Python worker failed to connect back."


class Fake:
    """A query that takes some looks to get its sources, then runs, or fails. It may fail some looks later
    than it has its sources, too."""

    def __init__(self, looks: int = 3, failure: str = "", sources: int | None = None) -> None:
        self._looks = looks
        self._failure = failure
        self._until = 0 if sources is None else looks - sources

    @property
    def isActive(self) -> bool:
        self._looks -= 1
        return self._looks > 0 or not self._failure

    @property
    def status(self) -> dict[str, str]:
        return {
            "message": "Initializing sources" if self._looks > self._until else "Waiting for data to arrive"
        }

    def exception(self) -> Any:
        return Exception(self._failure)


class World:
    """Counts what is started; a look takes a second."""

    def __init__(self, **queries: list[Fake]) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.begun: list[tuple[str, float]] = []
        self.most = 0
        self._queries = queries
        self.delivering: set[str] = set()
        self._now_starting: dict[str, Fake] = {}

    def starting(self, at_once: int = 2, stop_at: float = 1e9) -> QueryStarter:
        return QueryStarter(
            {name: lambda name=name: self._begin(name) for name in self._queries},  # type: ignore[misc]
            say=self.said.append,
            begun=self.delivering.__contains__,
            stopping=lambda: self.now >= stop_at,
            at_once=at_once,
            clock=lambda: self.now,
            sleep=self._sleep,
        )

    def _begin(self, name: str) -> Fake:
        self.begun.append((name, self.now))
        self._now_starting[name] = query = self._queries[name].pop(0)
        initializing = [each for each in self._now_starting.values() if each._looks > 0]
        self.most = max(self.most, len(initializing))
        return query

    def _sleep(self, seconds: float) -> None:
        self.now += 1


def test_no_more_queries_have_their_sources_started_at_once_than_there_are_cores() -> None:
    world = World(**{f"q{number}": [Fake(4)] for number in range(6)})
    world.starting(at_once=2).run()
    assert [name for name, _ in world.begun] == [f"q{number}" for number in range(6)]
    assert world.most == 2
    assert world.said == []


def test_the_first_is_started_alone() -> None:
    world = World(**{f"q{number}": [Fake(5)] for number in range(3)})
    world.starting(at_once=3).run()
    first, second, third = (began for _, began in world.begun)
    assert (first, second - first >= 3, third) == (0, True, second)


def test_a_query_whose_process_was_too_slow_is_started_again_and_it_is_said() -> None:
    world = World(q=[Fake(2, SLOW), Fake(2, SLOW), Fake()])
    starting = world.starting()
    starting.run()
    assert len(world.begun) == 3
    assert starting.queries["q"].isActive
    assert "was not up in the 10 s that Spark gives it" in world.said[0]
    assert "load of this machine" in world.said[0]
    assert f"(3 of {ATTEMPTS})" in world.said[1]


def test_a_query_whose_first_batch_fails_for_want_of_time_is_started_again() -> None:
    """It has its sources by then: what was too slow is the process of a processor."""
    world = World(q=[Fake(50, SLOW, sources=2), Fake(sources=2)], other=[Fake()])
    starting = world.starting(stop_at=100)
    starting.run()
    assert starting.queries["q"].isActive
    starting.stay()
    assert [name for name, _ in world.begun] == ["q", "other", "q"]
    assert f"(2 of {ATTEMPTS})" in world.said[0]


def test_a_query_that_ended_comes_back_until_it_has_begun_a_batch_or_was_given_up() -> None:
    world = World(q=[Fake(1, SLOW) for _ in range(99)])
    starting = world.starting()
    starting.queries["q"] = Fake(1, SLOW)
    assert starting.comes_back("q")
    world.delivering.add("q")
    assert not starting.comes_back("q")
    world.delivering.clear()
    starting.stay()
    assert starting.attempts["q"] == ATTEMPTS
    assert not starting.comes_back("q")


def test_nothing_is_looked_after_once_every_query_has_begun() -> None:
    world = World(q=[Fake()])
    starting = world.starting()
    starting.run()
    world.delivering.add("q")
    before = world.now
    starting.stay()
    assert world.now == before


def test_it_is_given_up_after_some_attempts() -> None:
    world = World(q=[Fake(1, SLOW) for _ in range(99)])
    starting = world.starting()
    starting.run()
    assert len(world.begun) == ATTEMPTS
    assert not starting.queries["q"].isActive


def test_what_fails_of_something_else_is_not_tried_again() -> None:
    world = World(q=[Fake(2, "ConfigError: there is no topic 'payments'")], other=[Fake()])
    world.starting().run()
    assert [name for name, _ in world.begun] == ["q", "other"]
    assert world.said == []


def test_what_is_waited_for_is_said_less_and_less_often() -> None:
    world = World(q=[Fake(400)])
    world.starting().run()
    assert [text.split(" s ")[0] for text in world.said] == [
        f"query 'q' has waited {seconds}" for seconds in (15, 30, 60, 120, 240)
    ]


def test_a_user_who_does_not_want_to_wait_need_not() -> None:
    world = World(q=[Fake(10**6)], other=[Fake()])
    world.starting(stop_at=20).run()
    assert [name for name, _ in world.begun] == ["q"]
    assert world.now == 20


def test_jobs_of_one_process_start_their_queries_in_turn() -> None:
    order: list[str] = []
    first_is_in, first_may_go = threading.Event(), threading.Event()

    def first() -> None:
        with in_turn(lambda: False):
            first_is_in.set()
            first_may_go.wait(60)
            order.append("first")

    def second() -> None:
        with in_turn(lambda: False):
            order.append("second")

    threads = [threading.Thread(target=one) for one in (first, second)]
    threads[0].start()
    assert first_is_in.wait(60)
    threads[1].start()
    with in_turn(lambda: True):  # a job that is to stop does not wait
        assert order == []
    first_may_go.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]
