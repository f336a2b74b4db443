"""Following the reports of jobs, on a real broker: late readers, rubbish, deletions, recreated topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.console.observing.job_topic import JobTopic, LastReport
from millstream.core.clock import ManualClock
from millstream.jobs.report import TOPIC, JobStatus, encoded
from tests.support.waiting import wait_for

TOLD_MS = 1_600_000_000_000


def told(name: str, **more: object) -> bytes:
    plain = {"run": "r", "host": "h", "pid": 1, "started_ms": 0, "at_ms": TOLD_MS, "since_ms": 0}
    values = {"version": 1, "job": name, "state": "running", "guarantee": "exactly-once", **plain, **more}
    return encoded(JobStatus(**values))  # type: ignore[arg-type]


class Followed:
    """A topic that is written and followed."""

    def __init__(self, address: str) -> None:
        self.connection = Connection(address)
        self.clock = ManualClock()
        self.topic = JobTopic(self.clock)

    def create(self) -> None:
        with Admin(self.connection) as admin:
            admin.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact"})

    def write(self, *records: tuple[str, bytes | None]) -> None:
        sender = RecordSender(self.connection, TOPIC)
        sender.send([Outgoing(value, key.encode()) for key, value in records])
        assert sender.finish(20)

    def look(self) -> dict[str, LastReport]:
        with Admin(self.connection) as admin:
            ends = admin.ends(admin.partitions([TOPIC])) if TOPIC in admin.topics() else {}
        return self.topic.look(self.connection, ends)


@pytest.fixture
def followed() -> Iterator[Followed]:
    with Broker() as broker:
        following = Followed(broker.address)
        yield following
        following.topic.close()


def test_without_the_topic_there_are_no_jobs(followed: Followed) -> None:
    assert followed.look() == {}


def test_the_last_word_of_each_counts_and_a_tombstone_is_the_end(followed: Followed) -> None:
    followed.create()
    followed.write(("a", told("a")), ("b", told("b")), ("a", told("a", state="stopped")))
    jobs = wait_for(followed.look)
    assert {name: job.status.state for name, job in jobs.items()} == {"a": "stopped", "b": "running"}
    followed.write(("b", None))
    wait_for(lambda: set(followed.look()) == {"a"}, what="b is gone")


def test_what_was_there_before_is_as_old_as_it_says_and_what_comes_is_new(followed: Followed) -> None:
    """A job's clock may be wrong; that a record came just now is known here."""
    followed.create()
    followed.write(("a", told("a")))
    assert wait_for(followed.look)["a"].heard_ms == TOLD_MS
    followed.write(("a", told("a", at_ms=TOLD_MS + 1)))
    wait_for(lambda: followed.look()["a"].status.at_ms == TOLD_MS + 1, what="the next word")
    assert followed.topic.jobs["a"].heard_ms == followed.clock.now_ms()


def test_rubbish_is_named_and_harms_nobody(followed: Followed) -> None:
    followed.create()
    followed.write(("x", b"\xff\x00"), ("a", told("a")), ("y", b"[]"))
    assert set(wait_for(followed.look)) == {"a"}
    assert followed.topic.unreadable == {"x", "y"}
    followed.write(("x", told("x")))
    wait_for(lambda: "x" in followed.look(), what="x")
    assert followed.topic.unreadable == {"y"}


def test_a_topic_that_is_made_anew_is_read_anew(followed: Followed) -> None:
    followed.create()
    followed.write(("a", told("a")), ("b", told("b")))
    wait_for(followed.look)
    with Admin(followed.connection) as admin:
        admin.delete_topics([TOPIC])
    wait_for(lambda: followed.look() == {}, what="nothing is left")
    followed.create()
    followed.write(("c", told("c")))
    wait_for(lambda: set(followed.look()) == {"c"}, what="the new one's")
