"""Lag, loss and the horizon, as the command line finds them out of any broker."""

from __future__ import annotations

import re

import pytest

from millstream.client.insight.horizon import look_ahead
from millstream.client.insight.lag import group_lag, missed_by, with_progress
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition
from millstream.core.clock import SystemClock
from tests.support.command import CommandLine

MINUTE = 60_000
HOUR = 60 * MINUTE


def keep(admin: Admin, topic: str, **settings: int) -> None:
    admin.alter_topic(topic, {name.replace("_", "."): str(value) for name, value in settings.items()})


def test_lag_in_time_is_that_from_the_oldest_unread_record_to_the_newest(admin: Admin, group: str) -> None:
    sender = RecordSender(admin.connection, group)
    sender.send([Outgoing(b"z", partition=0, timestamp=SystemClock().now_ms() - 10 * MINUTE)])
    assert sender.finish(30)
    first, second = group_lag(admin, group, SystemClock().now_ms())
    assert first.behind_ms is not None
    assert 20 * MINUTE <= first.behind_ms < 21 * MINUTE
    assert second.behind_ms == 0


def test_a_single_unread_record_is_not_called_none(millstream: CommandLine, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1)
    millstream.ok("produce", name, stdin="a\nb\n")
    admin.commit(name, {TopicPartition(name, 0): 1})
    _, row, total = millstream.ok("group", "lag", name).splitlines()
    assert row.split()[3:7] == ["2", "1", "0", "ms"]
    assert total.startswith("1 record behind")
    admin.commit(name, {TopicPartition(name, 0): 2})
    assert "none" in millstream.ok("group", "lag", name).splitlines()[1]


def test_time_to_loss_is_what_retention_leaves_the_oldest_unread_record(
    millstream: CommandLine, admin: Admin, group: str
) -> None:
    keep(admin, group, retention_ms=2 * HOUR)
    first, second = millstream.json("group", "lag", group)
    assert 80 * MINUTE < first["loss_ms"] <= 90 * MINUTE
    assert 100 * MINUTE < second["loss_ms"] <= 110 * MINUTE
    assert "loses in" in millstream.ok("group", "lag", group).splitlines()[0]
    keep(admin, group, retention_ms=-1)
    now = SystemClock().now_ms()
    assert [lag.loss_ms(now) for lag in group_lag(admin, group, now)] == [None, None]


def test_time_to_loss_counts_what_is_written_against_retention_by_size(admin: Admin, group: str) -> None:
    sender = RecordSender(admin.connection, group)
    sender.send([Outgoing(b"z" * 1000, partition=1, timestamp=SystemClock().now_ms() - MINUTE)] * 600)
    assert sender.finish(30)
    # About 600 kB in ten minutes; twice that much is kept.
    keep(admin, group, retention_ms=-1, retention_bytes=1_200_000)
    now = SystemClock().now_ms()
    first, second = (lag.loss_ms(now) for lag in group_lag(admin, group, now))
    assert first is None  # nothing is written there
    assert second is not None
    assert 5 * MINUTE < second < 15 * MINUTE


def test_time_to_loss_knows_that_a_topic_is_a_ring(
    millstream: CommandLine, admin: Admin, group: str, request: pytest.FixtureRequest
) -> None:
    if "Apache Kafka" in request.node.name:
        pytest.skip("it has no rings")
    sender = RecordSender(admin.connection, group)
    sender.send([Outgoing(b"z" * 1000, partition=1, timestamp=SystemClock().now_ms() - MINUTE)] * 600)
    assert sender.finish(30)
    admin.alter_topic(group, {"millstream.overload": "drop", "millstream.overload.bytes": "1400000"})
    now = SystemClock().now_ms()
    _, second = (lag.loss_ms(now) for lag in group_lag(admin, group, now))
    assert second is not None
    assert 5 * MINUTE < second < 15 * MINUTE  # and not the week that retention.ms would leave
    done = millstream.run("group", "lag", group, "--alert-before", "1h")
    assert done.returncode == 3
    assert f"{group} loses records of {group}[1] in" in done.stderr.decode()


def test_an_alarm_has_an_exit_code_of_its_own_and_says_why(
    millstream: CommandLine, admin: Admin, group: str
) -> None:
    done = millstream.run("group", "lag", group, "--alert", "8")
    assert (done.returncode, done.stderr.decode()) == (
        3,
        f"millstream: {group} is 9 records behind, more than 8\n",
    )
    keep(admin, group, retention_ms=2 * HOUR)
    assert millstream.run("group", "lag", group, "--alert", "9", "--alert-before", "1h").returncode == 0
    done = millstream.run("group", "lag", group, "--alert-before", "100m", "--over", "100ms")
    assert done.returncode == 3
    assert re.fullmatch(
        rf"millstream: {group} loses records of {group}\[0\] in 1 h \d+ min, sooner than in 1 h 40 min\n",
        done.stderr.decode(),
    )
    assert "is not a duration" in millstream.refused(
        "group", "lag", group, "--alert-before", "2 eons", code=2
    )


def test_what_is_lost_already_is_an_alarm_whatever_was_asked(millstream: CommandLine, group: str) -> None:
    millstream.ok("topic", "trim", group, "-p", "0", "--to", "8", "--yes")
    done = millstream.run("group", "lag", group, "--alert", "1000")
    assert done.returncode == 3
    assert f"{group} has lost 4 records of {group}[0]: deleted unread" in done.stderr.decode()


def test_a_group_that_reads_fast_enough_loses_nothing(admin: Admin, group: str) -> None:
    keep(admin, group, retention_ms=31 * MINUTE)
    now = SystemClock().now_ms()
    standing = group_lag(admin, group, now)
    assert standing[0].loss_ms(now) is not None

    admin.commit(group, {TopicPartition(group, 0): 7})
    moving = with_progress(admin, group, standing, passed=1.0)
    assert moving[0].read_per_second == 3
    assert moving[0].loss_ms(now) is None


def test_without_a_name_every_group_is_looked_at(millstream: CommandLine, group: str) -> None:
    rows = [row for row in millstream.json("group", "lag") if row["group"] == group]
    assert [row["records"] for row in rows] == [6, 3]


def test_what_a_group_missed_is_in_its_description(
    millstream: CommandLine, admin: Admin, group: str, request: pytest.FixtureRequest
) -> None:
    millstream.ok("topic", "trim", group, "-p", "0", "--to", "8", "--yes")
    millstream.ok("group", "seek", group, "--to", "end")  # what is past now is remembered all the same
    described = millstream.json("group", "describe", group)
    if "Apache Kafka" in request.node.name:
        assert described["missed"] == []  # it does not remember
        return
    (missed,) = described["missed"]
    assert (missed["partition"], missed["records"], missed["records_ever"]) == (0, 4, 4)
    assert (missed["first_offset"], missed["last_offset"]) == (4, 7)
    (known,) = missed_by(admin, group) or []
    now = SystemClock().now_ms()
    # By the batch: the producer may have put the records of an hour ago into the same one.
    assert 30 * MINUTE <= now - known.last_ms <= now - known.first_ms < 70 * MINUTE
    assert "Deleted before it had read them:" in millstream.ok("group", "describe", group)


def test_a_topic_tells_how_far_back_it_reaches(millstream: CommandLine, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1, config={"retention.bytes": "1200000", "retention.ms": "-1"})
    now = SystemClock().now_ms()
    sender = RecordSender(admin.connection, name)
    sender.send([Outgoing(b"old", timestamp=now - 20 * MINUTE)])
    sender.send([Outgoing(b"z" * 1000, timestamp=now - MINUTE)] * 600)
    assert sender.finish(30)
    (topic,) = millstream.json("topic", "describe", name)
    horizon = topic["horizon"]
    assert horizon["records_per_second"] == pytest.approx(1)
    assert horizon["bytes_per_second"] == pytest.approx(1000, rel=0.2)
    assert horizon["kept_ms"] == pytest.approx(20 * MINUTE, rel=0.2)
    assert horizon["disk_free_bytes"] > 0
    shown = millstream.ok("topic", "describe", name)
    assert "Written at 1 records/s, " in shown
    assert re.search(r"Retention keeps \d+ min.* at that rate; the oldest record is 20 min", shown)


def test_a_topic_without_limits_fills_the_disk(millstream: CommandLine, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1, config={"retention.ms": "-1"})
    now = SystemClock().now_ms()
    sender = RecordSender(admin.connection, name)
    sender.send([Outgoing(b"z" * 1000, timestamp=now - MINUTE)] * 1000)
    assert sender.finish(30)
    assert "Nothing is deleted by retention" in millstream.ok("topic", "describe", name)
    assert f"{name}[0]" not in growing(admin), "one burst is no forecast"
    steady = f"{name}-steady"
    admin.create_topic(steady, partitions=1, config={"retention.ms": "-1"})
    sender = RecordSender(admin.connection, steady)
    sender.send([Outgoing(b"z" * 1000, timestamp=now - 8 * MINUTE)] * 1000)
    sender.send([Outgoing(b"z" * 1000, timestamp=now - MINUTE)] * 1000)
    assert sender.finish(30)
    assert f"{steady}[0]" in growing(admin)
    assert "The disk is full in " in millstream.ok("topic", "describe", steady)


def growing(admin: Admin) -> set[str]:
    """The partitions that a forecast is made from."""
    horizon = look_ahead(admin, SystemClock().now_ms())
    return {str(place) for place, written in horizon.writing.items() if written.sustained}
