"""``millstream tail`` against real brokers."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.support.command import CommandLine
from tests.support.waiting import wait_for

ACCESS = '10.0.0.{n} - - [{day:02}/Nov/2026:08:55:36 +0000] "GET /{n} HTTP/1.1" 200 {n} "-" "curl"\n'


def records(millstream: CommandLine, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in millstream.ok("consume", topic, "-J", "-o", ":end").splitlines()]


def test_each_line_is_sent_once_over_restarts_and_rotation(
    millstream: CommandLine, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    log.write_text("".join(ACCESS.format(n=n, day=10) for n in range(3)) + "not a line of an access log\n")
    command = ("tail", str(log), "--to", name, "--format", "combined", "--key", "host", "--once", "--create")
    done = millstream.run(*command)
    assert done.returncode == 0
    assert f"sent 4 lines to {name}, 1 of them not in format combined" in done.stderr.decode()

    with log.open("a") as file:
        file.write(ACCESS.format(n=3, day=11))
    with gzip.open(tmp_path / "access.log.1.gz", "wb") as packed:
        packed.write(log.read_bytes())
    log.write_text(ACCESS.format(n=4, day=12))
    assert "sent 2 lines" in millstream.run(*command).stderr.decode()
    assert "sent 0 lines" in millstream.run(*command).stderr.decode()

    found = records(millstream, name)
    values = [json.loads(record["value"]) for record in found]
    assert [value.get("path") for value in values] == ["/0", "/1", "/2", None, "/3", "/4"]
    assert [record["key"] for record in found] == [
        *(f"10.0.0.{n}" for n in range(3)),
        None,
        "10.0.0.3",
        "10.0.0.4",
    ]
    assert values[0]["time"] == "2026-11-10T08:55:36.000Z"
    assert found[0]["timestamp"] == 1_794_300_936_000
    assert values[3] == {"raw": "not a line of an access log", "error": "not in combined log format"}
    assert found[4]["headers"] == [{"name": "file", "value": f"{tmp_path}/access.log.1.gz"}]


def test_it_follows_until_ctrl_c_and_what_is_not_of_the_format_goes_apart(
    millstream: CommandLine, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    log.write_text('{"n": 0}\n')
    bad = f"{name}.bad"
    following = millstream.start(
        *("tail", str(tmp_path / "*.log"), "--to", name, "--rejects", bad, "--format", "json", "--create"),
        stderr=subprocess.PIPE,
    )
    assert following.stderr is not None
    try:
        # The first look is over once the topic of progress says so; until then it would begin at the end.
        wait_for(lambda: f'{tmp_path}/app.log' in millstream.run(
            "consume", "__millstream_tail", "-o", ":end").stdout.decode(), timeout=60, every=0.3)  # fmt: skip
        with log.open("a") as file:
            file.write('{"n": 1}\n\noops\n{"n": 2}\n')
        wait_for(lambda: len(records(millstream, name)) == 2, timeout=60, every=0.3)
    finally:
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0
    said = following.stderr.read().decode()
    following.stderr.close()
    assert f"sent 3 lines to {name}, 1 of them not in format json" in said
    assert [json.loads(record["value"])["n"] for record in records(millstream, name)] == [1, 2]
    (rejected,) = records(millstream, bad)
    assert rejected["value"] == "oops"
    assert {header["name"] for header in rejected["headers"]} == {"file", "error"}


def test_what_is_asked_wrongly_is_told_in_a_line(millstream: CommandLine, name: str) -> None:
    assert "is not a format of lines" in millstream.refused(
        "tail", "x", "--to", name, "--format", "x", code=2
    )
    assert f"there is no topic '{name}'" in millstream.refused("tail", "x", "--to", name)
