"""``millstream topic export`` against real brokers."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pyarrow.parquet
import pytest

from millstream import client
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from tests.support.command import CommandLine
from tests.support.waiting import wait_for


def send(address: str, name: str, *values: bytes, abort: bool = False) -> None:
    """In a transaction: its marker takes an offset too."""
    with client.Transactions(address, f"{name}-writer") as transactions:
        txn = transactions.begin()
        for value in values:
            txn.send(name, value, key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
        if abort:
            txn.abort()
        else:
            txn.commit()


def test_each_committed_record_is_in_one_file_and_a_second_run_goes_on(
    millstream: CommandLine, admin: Admin, address: str, name: str, tmp_path: Path
) -> None:
    admin.create_topic(name, partitions=1)
    send(address, name, b"0", b"1")
    send(address, name, b"never", abort=True)
    place = TopicPartition(name, 0)
    middle = admin.bounds([place])[place].end
    done = millstream.run("topic", "export", name, "--to", str(tmp_path / "out"))
    assert f"exported 2 records of {name} in 1 file" in done.stderr.decode()
    send(address, name, b"2")
    millstream.ok("topic", "export", name, "--to", str(tmp_path / "out"))
    assert "exported 0 records" in millstream.run(
        "topic", "export", name, "--to", str(tmp_path / "out")).stderr.decode()  # fmt: skip
    first, second = sorted((tmp_path / "out").iterdir())
    # The markers of transactions have offsets too, and are covered.
    end = admin.bounds([place])[place].end
    assert middle > 2
    (topic,) = admin.describe_topics([name])
    assert first.name == f"{name}.{topic.id}-0-{0:020}-{middle - 1:020}.jsonl"
    assert second.name == f"{name}.{topic.id}-0-{middle:020}-{end - 1:020}.jsonl"
    lines = [json.loads(line) for path in (first, second) for line in path.read_text().splitlines()]
    assert [line["value"] for line in lines] == ["0", "1", "2"]
    assert lines[0]["headers"] == [{"name": "h", "value": "1"}]

    copy = f"{name}-copy"
    text = "".join(path.read_text() for path in (first, second))
    millstream.ok("produce", copy, "--create", "--format", "json", stdin=text)
    millstream.ok("topic", "export", copy, "--to", str(tmp_path / "copy"), "-F", "parquet", "--text")
    (table,) = (tmp_path / "copy").iterdir()
    rows = pyarrow.parquet.read_table(table).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [("k", "0"), ("k", "1"), ("k", "2")]
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000


def test_it_follows_until_ctrl_c_and_completes_what_it_has(
    millstream: CommandLine, admin: Admin, name: str, tmp_path: Path
) -> None:
    admin.create_topic(name, partitions=2)
    following = millstream.start(
        *("topic", "export", name, "--to", str(tmp_path), "--follow", "--quiet", "--size", "1kB")
    )
    try:
        for partition in ("0", "1"):
            millstream.ok("produce", name, "-p", partition, stdin="x" * 2000 + "\n")
        wait_for(lambda: len([p for p in tmp_path.iterdir() if p.name[0] != "."]) == 2, timeout=60)
        millstream.ok("produce", name, "-p", "1", stdin="last\n")
        wait_for(lambda: any(p.name[0] == "." for p in tmp_path.iterdir()), timeout=60)
    finally:
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0
    values = [json.loads(path.read_text())["value"] for path in sorted(tmp_path.iterdir())]
    assert values == ["x" * 2000, "x" * 2000, "last"]


def test_files_that_go_beyond_the_log_are_not_gone_on_with(
    millstream: CommandLine, admin: Admin, name: str, tmp_path: Path
) -> None:
    admin.create_topic(name, partitions=1)
    (topic,) = admin.describe_topics([name])
    (tmp_path / f"{name}.{topic.id}-0-{0:020}-{99:020}.jsonl").write_text("")
    said = millstream.refused("topic", "export", name, "--to", str(tmp_path))
    assert f"{name}[0] ends at offset 0, but there are files up to 99" in said
    assert "is not a size" in millstream.refused(
        "topic", "export", name, "--to", str(tmp_path), "--size", "big", code=2)  # fmt: skip


def exported(directory: Path) -> list[str]:
    """The values in complete files, those of the files that were written first first."""
    files = sorted(directory.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line)["value"] for path in files for line in path.read_text().splitlines()]


def create_again(admin: Admin, name: str) -> None:
    assert admin.delete_topics([name]) == {name: None}
    admin.create_topic(name, partitions=1)


def test_a_topic_that_was_created_again_is_exported_from_its_start(
    millstream: CommandLine, admin: Admin, name: str, tmp_path: Path
) -> None:
    admin.create_topic(name, partitions=1)
    millstream.ok("produce", name, stdin="".join(f"old {n}\n" for n in range(10)))
    millstream.ok("topic", "export", name, "--to", str(tmp_path))
    create_again(admin, name)
    new = [f"new {n}" for n in range(15)]
    millstream.ok("produce", name, stdin="\n".join(new) + "\n")
    done = millstream.run("topic", "export", name, "--to", str(tmp_path))
    assert f"{name} was deleted and created again since it was exported" in done.stderr.decode()
    assert "exported 15 records" in done.stderr.decode()
    assert exported(tmp_path) == [*(f"old {n}" for n in range(10)), *new]
    again = millstream.run("topic", "export", name, "--to", str(tmp_path)).stderr.decode()
    assert "exported 0 records" in again
    assert "created again" not in again


@pytest.mark.parametrize("fewer", [True, False], ids=["fewer records than before", "more than before"])
def test_a_topic_that_is_created_again_while_it_is_followed_is_exported_from_its_start(
    millstream: CommandLine, admin: Admin, name: str, tmp_path: Path, fewer: bool
) -> None:
    admin.create_topic(name, partitions=1)
    old, new = (
        [f"{which} {n}" for n in range(20 if fewer == (which == "old") else 5)] for which in ("old", "new")
    )
    following = millstream.start(
        *("topic", "export", name, "--to", str(tmp_path), "--follow", "--quiet", "--every", "100ms")
    )
    try:
        millstream.ok("produce", name, stdin="\n".join(old) + "\n")
        wait_for(lambda: exported(tmp_path) == old, timeout=60, what="the old topic is exported")
        create_again(admin, name)
        millstream.ok("produce", name, stdin="\n".join(new) + "\n")
        wait_for(lambda: len(exported(tmp_path)) >= len(old) + len(new), timeout=60, what="the new one is")
    finally:
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0
    assert exported(tmp_path) == old + new
