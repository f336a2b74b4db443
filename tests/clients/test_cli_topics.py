"""``millstream topic`` against real brokers."""

from __future__ import annotations

from tests.support.command import CommandLine


def test_a_topic_is_created_listed_described_and_deleted(millstream: CommandLine, name: str) -> None:
    created = millstream.ok("topic", "create", name, "-p", "3", "-c", "retention.ms=3600000")
    assert created == f"created {name} with 3 partitions\n"
    assert {"topic": name, "partitions": 3, "records": 0} in millstream.json("topic", "list")

    millstream.ok("produce", name, "--partition", "1", stdin="a\nb\n")
    [topic] = millstream.json("topic", "describe", name)
    assert [
        (partition["partition"], partition["start"], partition["end"], partition["records"])
        for partition in topic["partitions"]
    ] == [(0, 0, 0, 0), (1, 0, 2, 2), (2, 0, 0, 0)]
    assert topic["partitions"][1]["newest"] is not None
    assert topic["partitions"][0]["newest"] is None
    own = [setting for setting in topic["settings"] if setting["own"]]
    assert [(setting["name"], setting["value"]) for setting in own] == [("retention.ms", "3600000")]
    assert "older than this" in own[0]["meaning"]

    assert millstream.ok("topic", "delete", name, "--yes") == f"deleted {name} with 2 records\n"
    assert name not in [topic["topic"] for topic in millstream.json("topic", "list")]


def test_tables_in_a_pipe_are_plain_columns(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, "-p", "2")
    millstream.ok("produce", name, "--partition", "0", stdin="x\n" * 1234)
    lines = millstream.ok("topic", "list", name).splitlines()
    assert [line.split() for line in lines] == [["topic", "partitions", "records"], [name, "2", "1234"]]
    described = millstream.ok("topic", "describe", name)
    assert f"{name}: 2 partitions, 1,234 records" in described
    assert "\033" not in described


def test_creating_twice_is_an_error_unless_allowed(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    assert "exists" in millstream.refused("topic", "create", name)
    assert millstream.ok("topic", "create", name, "--if-not-exists") == f"{name} already exists\n"


def test_what_a_broker_refuses_is_said_in_one_line(millstream: CommandLine, name: str) -> None:
    assert "can't create topic 'no/such'" in millstream.refused("topic", "create", "no/such")
    wrong = millstream.refused("topic", "create", name, "-c", "retenton.ms=1")
    assert "retenton.ms" in wrong
    assert "did you mean 'retention.ms'?" in wrong
    assert "retention.ms" in millstream.refused("topic", "create", name, "-c", "retention.ms=soon")


def test_an_unknown_topic_is_told_with_the_nearest_names(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    for command in (
        ("topic", "describe"),
        ("topic", "alter", "-c", "retention.ms=1"),
        ("topic", "delete", "--yes"),
        ("topic", "trim", "--to", "end", "--yes"),
        ("topic", "add-partitions", "--add", "1"),
        ("consume",),
        ("produce",),
    ):
        said = millstream.refused(*command, f"{name}x")
        assert f"there is no topic '{name}x'" in said
        assert f"did you mean '{name}'" in said
    for command in (("consume",), ("topic", "delete", "--yes")):
        said = millstream.refused(*command, "qqqqqqqqqqqqqqqqqqqqqqqqqqq")
        assert "`millstream topic list` shows all topics" in said
        assert "create" not in said


def test_settings_are_changed_and_returned_to_their_defaults(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, "-c", "segment.bytes=1048576")

    def own() -> dict[str, str]:
        [topic] = millstream.json("topic", "describe", name)
        return {setting["name"]: setting["value"] for setting in topic["settings"] if setting["own"]}

    shown = millstream.ok("topic", "alter", name, "-c", "retention.ms=60000")
    assert shown.splitlines()[1].split() == ["retention.ms", "604800000", "60000"]
    assert own() == {"segment.bytes": "1048576", "retention.ms": "60000"}
    millstream.ok("topic", "alter", name, "--unset", "segment.bytes")
    assert own() == {"retention.ms": "60000"}
    assert "nothing to change" in millstream.refused("topic", "alter", name, code=2)


def test_partitions_are_added_and_never_taken_away(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, "-p", "2")
    assert f"{name} has 5 partitions now, 2 before" in millstream.ok(
        "topic", "add-partitions", name, "--add", "3"
    )
    assert f"{name} has 6 partitions now" in millstream.ok("topic", "add-partitions", name, "--total", "6")
    assert "can only get more" in millstream.refused("topic", "add-partitions", name, "--total", "3", code=2)
    assert "either --add" in millstream.refused("topic", "add-partitions", name, code=2)


def test_trimming_deletes_the_oldest_records_and_says_how_many(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, "-p", "2")
    millstream.ok("produce", name, "-p", "0", stdin="".join(f"{i}\n" for i in range(10)))
    millstream.ok("produce", name, "-p", "1", stdin="a\nb\n")
    plan = millstream.json("topic", "trim", name, "--to", "-3", "--dry-run")
    assert [(row["old_start"], row["new_start"], row["deleted"]) for row in plan] == [(0, 7, 7), (0, 0, 0)]
    assert "no terminal" in millstream.refused("topic", "trim", name, "--to", "-3", code=2)
    assert millstream.ok("consume", name, "-p", "0", "-o", ":end").split() == [str(i) for i in range(10)]

    millstream.ok("topic", "trim", name, "--to", "7", "-p", "0", "--yes")
    assert millstream.ok("consume", name, "-p", "0", "-o", ":end").split() == ["7", "8", "9"]
    done = millstream.run("consume", name, "-p", "0", "-o", "5:end")
    assert done.stdout.split() == [b"7", b"8", b"9"]
    assert b"offsets 5 to 6 are no longer there" in done.stderr
    assert "no partition 9" in millstream.refused("topic", "trim", name, "--to", "end", "-p", "9", code=2)


def test_deleting_without_being_able_to_ask_deletes_nothing(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    millstream.ok("produce", name, stdin="x\n")
    said = millstream.refused("topic", "delete", name, code=2)
    assert f"Delete {name} (1 record)?" in said
    assert "--yes" in said
    assert millstream.ok("consume", name, "-o", ":end") == "x\n"
