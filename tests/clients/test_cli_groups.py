"""``millstream group`` against real brokers."""

from __future__ import annotations

import signal
import subprocess

import pytest
from confluent_kafka import Consumer

from millstream.client.librdkafka.admin import Admin
from tests.support.command import CommandLine
from tests.support.waiting import wait_for

MINUTE = 60_000


def offsets(admin: Admin, group: str) -> dict[int, int]:
    return {place.partition: offset for place, offset in admin.committed(group).items()}


def test_lag_is_told_in_records_and_in_time(millstream: CommandLine, group: str) -> None:
    first, second = millstream.json("group", "lag", group)
    assert (first["committed"], first["end"], first["records"]) == (4, 10, 6)
    assert 30 * MINUTE <= first["age_ms"] < 40 * MINUTE
    assert (second["committed"], second["end"], second["records"]) == (0, 3, 3)
    assert 10 * MINUTE <= second["age_ms"] < 20 * MINUTE
    shown = millstream.ok("group", "lag", group)
    assert shown.splitlines()[-1].startswith("9 records behind, the oldest 30 min")


def test_records_deleted_before_they_were_read_are_shown_as_lost(millstream: CommandLine, group: str) -> None:
    millstream.ok("topic", "trim", group, "-p", "0", "--to", "8", "--yes")
    first, _ = millstream.json("group", "lag", group)
    assert (first["committed"], first["start"], first["records"], first["lost"]) == (4, 8, 2, 4)
    done = millstream.run("group", "lag", group)
    assert b"4 records deleted before this group read them" in done.stderr


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("start", {0: 0, 1: 0}),
        ("end", {0: 10, 1: 3}),
        ("2", {0: 2, 1: 2}),
        ("+3", {0: 7, 1: 3}),
        ("-3", {0: 1, 1: 0}),
        ("@-40m", {0: 4, 1: 0}),
        ("@-20m", {0: 10, 1: 0}),
        ("@2026-01-01", {0: 0, 1: 0}),
    ],
)
def test_seeking_moves_every_partition_and_prints_old_and_new(
    millstream: CommandLine, admin: Admin, group: str, to: str, wanted: dict[int, int]
) -> None:
    moved = millstream.json("group", "seek", group, "--to", to)
    assert {row["partition"]: row["old"] for row in moved} == {0: 4, 1: 0}
    assert {row["partition"]: row["new"] for row in moved} == wanted
    assert offsets(admin, group) == wanted


def test_a_dry_run_shows_the_same_and_moves_nothing(
    millstream: CommandLine, admin: Admin, group: str
) -> None:
    plan = millstream.json("group", "seek", group, "--to", "end", "--dry-run")
    assert offsets(admin, group) == {0: 4, 1: 0}
    assert millstream.json("group", "seek", group, "--to", "end") == plan


def test_one_partition_can_be_moved_alone(millstream: CommandLine, admin: Admin, group: str) -> None:
    shown = millstream.ok("group", "seek", group, "--to", "end", "-p", "1")
    assert shown.splitlines()[1].split() == [group, "1", "0", "3", "0"]
    assert offsets(admin, group) == {0: 4, 1: 3}


def test_a_group_is_not_moved_or_deleted_under_its_members(millstream: CommandLine, group: str) -> None:
    member = millstream.start("consume", group, "--group", group, stdout=subprocess.PIPE)
    assert member.stdout is not None
    try:
        assert member.stdout.readline() in (b"x\n", b"y\n")  # it has joined, and reads
        described = millstream.json("group", "describe", group)
        assert described["state"] == "Stable"
        assert [place["partition"] for place in described["members"][0]["assigned"]] == [0, 1]
        said = millstream.refused("group", "seek", group, "--to", "start")
        assert f"{group} has 1 active member (millstream at 127.0.0.1); stop them first" in said
        assert "1 active member" in millstream.refused("group", "delete", group, "--yes")
    finally:
        member.send_signal(signal.SIGINT)
        assert member.wait(90) == 0
        member.stdout.close()
    millstream.ok("group", "seek", group, "--to", "start")
    assert millstream.ok("group", "delete", group, "--yes") == f"deleted {group} with 2 committed offsets\n"


def test_groups_are_listed_and_deleted(millstream: CommandLine, group: str) -> None:
    listed = {"group": group, "state": "Empty", "type": "classic", "pipeline": None}
    assert listed in millstream.json("group", "list")
    assert "no terminal" in millstream.refused("group", "delete", group, code=2)
    millstream.ok("group", "delete", group, "--yes")
    assert group not in [listed["group"] for listed in millstream.json("group", "list")]


def test_an_unknown_group_is_told_with_the_nearest_names(millstream: CommandLine, group: str) -> None:
    for command in (
        ("group", "describe"),
        ("group", "lag"),
        ("group", "delete", "--yes"),
        ("group", "seek", "--to", "start"),
    ):
        said = millstream.refused(*command, f"{group}x")
        assert f"there is no consumer group '{group}x'" in said
        assert f"did you mean '{group}'" in said


def test_seeking_by_steps_needs_an_offset_to_count_from(millstream: CommandLine, group: str) -> None:
    said = millstream.refused("group", "seek", f"{group}-new", "--topic", group, "--to", "-3", code=2)
    assert "to count from" in said


def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs(
    millstream: CommandLine, address: str, group: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"{group}-new",
            "group.protocol": "consumer",
            "group.instance.id": "static",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([group])
        wait_for(lambda: consumer.poll(0.1) is not None, timeout=90, what="it reads")
        listed = {each["group"]: each for each in millstream.json("group", "list")}
        assert listed[f"{group}-new"]["type"] == "consumer"
        described = millstream.json("group", "describe", f"{group}-new")
        (member,) = described["members"]
        assert (described["type"], described["assignor"]) == ("consumer", "uniform")
        assert described["epoch"] == described["assignment_epoch"] == member["epoch"] >= 1
        assert (member["instance"], member["awaited"]) == ("static", [])
        assert {place["partition"] for place in member["assigned"]} == {0, 1}
        shown = millstream.ok("group", "describe", f"{group}-new").splitlines()
        epochs = f"epoch {described['epoch']}, assigned in {described['epoch']}"
        assert shown[0] == f"{group}-new: Stable, consumer, 1 member, assignor uniform, {epochs}"
        lags = millstream.json("group", "lag", f"{group}-new")
        assert {each["member"] for each in lags} == {member["client"]}
    finally:
        consumer.close()
    # Gone for now, it is listed in a state that only groups of this kind have.
    listed = {each["group"]: each for each in millstream.json("group", "list")}
    assert listed[f"{group}-new"]["state"] in ("Reconciling", "Assigning")
