"""``millstream produce`` and ``millstream consume`` against real brokers."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

from tests.support.command import CommandLine
from tests.support.waiting import wait_for

# Records with times of their own, long ago: retention would delete them while a test looks.
KEPT = ("-c", "retention.ms=-1")


def numbers(first: int, until: int) -> str:
    return "".join(f"{number}\n" for number in range(first, until))


def test_lines_come_back_in_the_order_they_were_sent(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    done = millstream.run("produce", name, stdin=numbers(0, 10_000))
    assert (done.returncode, done.stderr.decode()) == (0, f"millstream: delivered 10,000 records to {name}\n")
    assert millstream.ok("consume", name, "-o", "start:end") == numbers(0, 10_000)


def test_every_way_to_say_where(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, *KEPT)
    millstream.ok("produce", name, "--timestamp", "@2026-01-01", stdin=numbers(0, 10))
    millstream.ok("produce", name, "--timestamp", "@2026-01-02T12:00", stdin=numbers(10, 20))
    for where, wanted in (
        (":end", range(20)),
        ("start:3", range(3)),
        ("5:8", range(5, 8)),
        ("-3:end", range(17, 20)),
        ("-5:-3", range(15, 17)),
        ("+2:+4", range(2, 4)),
        ("@2026-01-02:end", range(10, 20)),
        ("@2026-01-01:2026-01-02", range(10)),
        ("@1767225600000:@2026-01-01T00:00:01Z", range(10)),
        ("@-1s:end", ()),
        ("end:end", ()),
        ("19:500", (19,)),
    ):
        assert millstream.ok("consume", name, "-o", where).split() == [str(n) for n in wanted], where
    assert millstream.ok("consume", name, "-o", "47", "-p", "0", "-o", "-2", "-n", "2").split() == [
        "18",
        "19",
    ]


def test_a_number_of_records_ends_it(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, "-p", "3")
    millstream.ok("produce", name, "-p", "2", stdin=numbers(0, 50))
    assert millstream.ok("consume", name, "-o", "start", "-n", "7").split() == [str(n) for n in range(7)]
    done = millstream.run("consume", name, "-o", ":end", "-n", "70")
    assert (done.returncode, len(done.stdout.split())) == (0, 50)
    assert b"only 50 records in that range" in done.stderr


def test_keys_headers_and_times_are_sent_and_shown(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name, *KEPT)
    millstream.ok(
        *(
            "produce",
            name,
            "--key-separator",
            ":",
            "-H",
            "a=1",
            "-H",
            "b=x=y",
            "--timestamp",
            "1767225600000",
        ),
        stdin="k:v:w\n:\n",
    )
    millstream.ok("produce", name, "--key", "fixed", "--tombstones", stdin="\n")
    shown = millstream.ok("consume", name, "-o", ":end", "-f", r"%t[%p]@%o %k=%s %K/%S %h" + "\n")
    assert shown.splitlines() == [
        f"{name}[0]@0 k=v:w 1/3 a=1,b=x=y",
        f"{name}[0]@1 = 0/0 a=1,b=x=y",
        f"{name}[0]@2 fixed= 5/-1 ",
    ]
    assert millstream.ok("consume", name, "-o", "0:1", "-f", "%T %D").strip() == (
        "1767225600000 2026-01-01T00:00:00.000Z"
    )


def test_json_out_and_in_copies_a_topic_byte_for_byte(millstream: CommandLine, name: str) -> None:
    copy = f"{name}-copy"
    millstream.ok("topic", "create", name, copy, "-p", "2", *KEPT)
    sent = [
        {"key": "k", "value": "text", "partition": 1, "timestamp": 1_767_225_600_000},
        {
            "key_base64": "/w==",
            "value_base64": "AP8=",
            "headers": [{"name": "h", "value": None}],
            "partition": 0,
        },
        {"value": {"nested": [1, 2]}, "headers": {"a": "b"}, "partition": 0},
        {"key": "gone", "value": None, "partition": 1},
    ]
    millstream.ok("produce", name, "--format", "json", stdin="".join(json.dumps(r) + "\n" for r in sent))
    first = millstream.ok("consume", name, "-o", ":end", "-J")
    millstream.ok("produce", copy, "--format", "json", stdin=first)
    second = millstream.ok("consume", copy, "-o", ":end", "--output", "json")

    def records(text: str) -> list[str]:
        parsed = [json.loads(line) for line in text.splitlines()]
        return sorted(json.dumps({**record, "topic": ""}, sort_keys=True) for record in parsed)

    assert records(second) == records(first)
    assert len(records(first)) == 4
    [nested] = [
        record
        for line in first.splitlines()
        if (record := json.loads(line)).get("headers") and record["value"]
    ]
    assert nested["value"] == '{"nested":[1,2]}'


def test_a_bad_line_is_named_and_what_was_before_it_is_delivered(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    done = millstream.run(
        "produce", name, "--format", "json", stdin='{"value": "a"}\n\n{"vale": "b"}\n{"value": "c"}\n'
    )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[0] == f"millstream: delivered 1 record to {name}"
    assert "line 3: a record has no field 'vale'" in done.stderr.decode()
    assert millstream.ok("consume", name, "-o", ":end") == "a\n"


def test_a_file_is_sent_whole_or_by_line(millstream: CommandLine, name: str, tmp_path: Path) -> None:
    millstream.ok("topic", "create", name)
    file = tmp_path / "input"
    file.write_bytes(b"one\ntwo")
    millstream.ok("produce", name, "--file", str(file), "--compression", "zstd")
    millstream.ok("produce", name, "--file", str(file), "--format", "raw")
    values = [
        json.loads(line)["value"] for line in millstream.ok("consume", name, "-o", ":end", "-J").splitlines()
    ]
    assert values == ["one", "two", "one\ntwo"]
    assert "no such file" in millstream.refused("produce", name, "--file", str(tmp_path / "none"), code=2)


def test_a_record_that_is_too_large_is_reported_and_the_exit_code_is_1(
    millstream: CommandLine, name: str
) -> None:
    millstream.ok("topic", "create", name, "-c", "max.message.bytes=2000")
    done = millstream.run("produce", name, stdin="x" * 5000 + "\n")
    assert done.returncode == 1
    said = done.stderr.decode()
    assert "1 record not delivered" in said
    assert f"line 1: a record of 5,000 bytes is larger than topic '{name}' accepts" in said
    assert f"millstream topic alter {name} -c max.message.bytes=" in said
    large = millstream.run("produce", name, stdin="a\n\nb\n" + "x" * 1_500_000 + "\nafter\n")
    assert large.returncode == 1
    assert "line 4: a record of 1,500,000 bytes is larger than topic" in large.stderr.decode()
    assert "a\n\nb\n" in millstream.ok("consume", name, "-o", ":end")  # what stands before it is sent
    assert "no partition 7" in millstream.run("produce", name, "-p", "7", stdin="x\n").stderr.decode()


def test_the_advice_for_a_record_that_is_too_large_helps(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    line = "x" * 1_000_000 + "\n"  # within what a topic takes unless it was told otherwise
    millstream.ok("produce", name, stdin=line)
    line = "x" * 3_000_000 + "\n"
    said = millstream.run("produce", name, stdin=line).stderr.decode()
    advice = re.search(r"`millstream (.*)`", said)
    assert advice is not None, said
    millstream.ok(*advice[1].split())
    millstream.ok("produce", name, stdin=line)
    line = "x" * 40_000_000 + "\n"
    said = millstream.run("produce", name, stdin=line).stderr.decode()
    assert "line 1: a record of 40,000,000 bytes is larger than this client sends" in said
    options = re.findall(r"-X \S+", said)
    millstream.ok("topic", "alter", name, "-c", "max.message.bytes=50000000")
    millstream.ok("produce", name, *(part for option in options for part in option.split()), stdin=line)


def test_small_records_reach_a_topic_that_takes_only_small_batches(
    millstream: CommandLine, name: str
) -> None:
    millstream.ok("topic", "create", name, "-c", "max.message.bytes=2000")
    millstream.ok("produce", name, stdin=numbers(0, 5000))
    assert len(millstream.ok("consume", name, "-o", ":end").split()) == 5000


def test_an_unknown_topic_is_created_only_if_asked_for(millstream: CommandLine, name: str) -> None:
    said = millstream.refused("produce", name, stdin="x\n")
    assert "there is no topic" in said
    assert f"--create creates '{name}'" in said
    millstream.ok("produce", name, "--create", "--quiet", stdin="x\n")
    assert millstream.ok("consume", name, "-o", ":end") == "x\n"


def test_head_ends_a_follower_cleanly(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    millstream.ok("produce", name, stdin=numbers(0, 1000))
    follower = millstream.start(
        "consume", name, "-o", "start", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"0\n"
    follower.stdout.close()  # as head -1 does, with nothing more to come
    assert follower.wait(90) == 0
    assert follower.stderr is not None
    assert follower.stderr.read() == b""
    follower.stderr.close()


def test_a_follower_shows_what_is_appended_and_ends_at_ctrl_c(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    millstream.ok("produce", name, stdin="old\n")
    follower = millstream.start("consume", name, "-o", "start", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"old\n"
    millstream.ok("produce", name, stdin="new\n")
    assert follower.stdout.readline() == b"new\n"
    follower.send_signal(signal.SIGINT)
    assert follower.wait(90) == 0
    follower.stdout.close()


def test_a_pattern_follows_topics_that_come_later(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", f"{name}-a")
    millstream.ok("produce", f"{name}-a", stdin="a\n")
    follower = millstream.start(
        *("consume", "--pattern", f"{name}-.", "-o", "start", "-f", r"%t %s\n"), stdout=subprocess.PIPE
    )
    assert follower.stdout is not None
    assert follower.stdout.readline().decode() == f"{name}-a a\n"
    millstream.ok("topic", "create", f"{name}-b", f"{name}-other")
    millstream.ok("produce", f"{name}-other", stdin="no\n")
    millstream.ok("produce", f"{name}-b", stdin="b\n")
    assert follower.stdout.readline().decode() == f"{name}-b b\n"
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(90) == 0
    follower.stdout.close()


def test_a_terminal_is_shown_no_control_characters(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    wild = b"\x1b]0;owned\x07 \xff fine"
    millstream.ok("produce", name, stdin=wild + b"\n")
    assert millstream.run("consume", name, "-o", ":end").stdout == wild + b"\n"
    ours, theirs = pty.openpty()
    try:
        done = millstream.start("consume", name, "-o", ":end", stdout=theirs)
        assert done.wait(400) == 0
        assert os.read(ours, 1000) == b"\\x1b]0;owned\\x07 \\xff fine\r\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_endless_input_stays_bounded_in_memory_and_ctrl_c_says_what_arrived(
    millstream: CommandLine, name: str
) -> None:
    millstream.ok("topic", "create", name)
    yes = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    producer = millstream.start("produce", name, "--acks", "1", stdin=yes.stdout, stderr=subprocess.PIPE)
    assert yes.stdout is not None
    assert producer.stderr is not None
    yes.stdout.close()
    try:
        # A producer that keeps what it read would need far more than this for a million records.
        def records() -> int:
            [topic] = millstream.json("topic", "list", name)
            return int(topic["records"])

        wait_for(lambda: records() > 300_000, timeout=60, what="records arrive", every=0.2)
        early = _resident_mb(producer.pid)
        wait_for(lambda: records() > 1_000_000, timeout=400, what="a million records arrive", every=0.2)
        late = _resident_mb(producer.pid)
        producer.send_signal(signal.SIGINT)
        said = producer.stderr.read().decode()
        assert producer.wait(90) == 0, said
    finally:
        yes.kill()
        yes.wait()
        producer.kill()
        producer.wait()
        producer.stderr.close()
    assert late < 150, f"{early} MB, then {late} MB"
    assert late - early < 40, f"{early} MB, then {late} MB"
    assert said == f"millstream: delivered {records():,} records to {name}\n"


def _resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def test_a_line_typed_at_a_terminal_is_sent_at_once(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    producer = millstream.start("produce", name, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert producer.stdin is not None
    producer.stdin.write(b"first\n")
    producer.stdin.flush()
    wait_for(lambda: millstream.ok("consume", name, "-o", ":end") == "first\n", timeout=90, what="it arrives")
    producer.send_signal(signal.SIGINT)
    _, said = producer.communicate(timeout=400)
    assert (producer.returncode, said.decode()) == (0, f"millstream: delivered 1 record to {name}\n")


def test_a_pager_that_takes_nothing_does_not_hold_ctrl_c_back(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    millstream.ok("produce", name, stdin=("x" * 1000 + "\n") * 2000)
    follower = millstream.start("consume", name, "-o", "start", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.read(1) == b"x"  # it writes, and fills the pipe
    follower.send_signal(signal.SIGINT)
    assert follower.wait(90) == 0
    follower.stdout.close()


def test_group_members_commit_what_they_printed(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    millstream.ok("produce", name, stdin=numbers(0, 10))
    group = ("--group", name, "-o", "start")
    assert millstream.ok("consume", name, *group, "-n", "4").split() == ["0", "1", "2", "3"]
    assert millstream.ok("consume", name, *group, "-n", "3").split() == ["4", "5", "6"]
    assert "millstream group seek" in millstream.refused("consume", name, "--group", name, "-o", "5", code=2)
    assert "exclude each other" in millstream.refused("consume", name, "--group", name, "-p", "0", code=2)


def test_a_group_reads_topics_by_pattern(millstream: CommandLine, name: str) -> None:
    for topic in ("a", "b"):
        millstream.ok("topic", "create", f"{name}-{topic}")
        millstream.ok("produce", f"{name}-{topic}", stdin=f"{topic}\n")
    out = millstream.ok("consume", "--pattern", f"{name}-[ab]", "-g", name, "-o", "start", "-n", "2")
    assert sorted(out.split()) == ["a", "b"]


def test_ctrl_c_commits_a_groups_offsets(millstream: CommandLine, name: str) -> None:
    millstream.ok("topic", "create", name)
    millstream.ok("produce", name, stdin=numbers(0, 5))
    member = millstream.start("consume", name, "-g", name, "-o", "start", stdout=subprocess.PIPE)
    assert member.stdout is not None
    assert [member.stdout.readline() for _ in range(5)] == [b"%d\n" % n for n in range(5)]
    member.send_signal(signal.SIGINT)
    assert member.wait(90) == 0
    member.stdout.close()
    [lag] = millstream.json("group", "lag", name)
    assert (lag["committed"], lag["records"]) == (5, 0)
