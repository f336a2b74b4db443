"""``millstream serve``: how a broker starts, ends, and says that it can't."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient


@pytest.fixture
def shell() -> CommandLine:
    """``millstream`` without a broker."""
    return CommandLine("127.0.0.1:1")


def test_it_prints_its_address_serves_and_exits_0_on_sigterm(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker:  # which checks the exit code
        millstream = CommandLine(broker.address)
        millstream.ok("topic", "create", "kept", "-p", "2")
        millstream.ok("produce", "kept", stdin="a\nb\n")
    assert "ready at" in broker.logged()
    with ServeProcess(tmp_path / "data") as broker:
        assert sorted(CommandLine(broker.address).ok("consume", "kept", "-o", ":end").split()) == ["a", "b"]


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_broker_that_can_not_listen_leaves_nothing_and_says_only_why(
    tmp_path: Path, shell: CommandLine, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {"--listen": "127.0.0.1:0", option: f"127.0.0.1:{taken.getsockname()[1]}"}
        given = [part for pair in places.items() for part in pair]
        done = shell.run("serve", "--data", str(tmp_path / "data"), *given)
    assert done.returncode == 1
    assert "is in use" in done.stderr.decode()
    assert "shut down cleanly" not in done.stderr.decode()
    refused = shell.refused("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:99999")
    assert "listen: '127.0.0.1:99999': '99999' is not a port" in refused
    assert not (tmp_path / "data").exists()


def test_settings_come_from_a_file_and_options_win_over_it(tmp_path: Path, shell: CommandLine) -> None:
    file = tmp_path / "millstream.toml"
    port = free_port()
    file.write_text(
        f'"num.partitions" = 4\n"http.listen" = "127.0.0.1:{port}"\n[topic]\n"retention.ms" = 5000\n'
    )
    out = tmp_path / "out"
    with out.open("wb") as stdout:
        broker = shell.start(
            *("serve", "--config", str(file), "--listen", "127.0.0.1:0"),
            *("--set", "num.partitions=5", "--set", "topic.segment.bytes=4096"),
            stdout=stdout,
        )
    try:
        address = wait_for(lambda: out.read_text().strip(), what="it prints its address")
        millstream = CommandLine(address)
        assert millstream.ok("topic", "create", "t") == "created t with 5 partitions\n"
        [topic] = millstream.json("topic", "describe", "t")
        values = {setting["name"]: setting["value"] for setting in topic["settings"]}
        assert (values["retention.ms"], values["segment.bytes"]) == ("5000", "4096")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 200
    finally:
        broker.send_signal(signal.SIGINT)
        assert broker.wait(90) == 0


def test_a_port_in_use_is_said(shell: CommandLine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell.run("serve", "--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    [said] = [line for line in done.stderr.decode().splitlines() if line.startswith("millstream: ")]
    assert f"{port}" in said
    assert "in use" in said


def test_two_brokers_on_one_directory_are_impossible(shell: CommandLine, tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker:
        done = shell.run("serve", "--data", str(broker.data), "--listen", "127.0.0.1:0")
        assert done.returncode == 1
        assert f"in use by another broker (process {broker.pid})" in done.stderr.decode()
        assert CommandLine(broker.address).ok("topic", "create", "t") == "created t with 1 partition\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("num.partitions = = 3", "not valid TOML.*line 1"),
        ('"num.partitons" = 3', "unknown setting 'num.partitons'; did you mean 'num.partitions'"),
        ('"num.partitions" = "many"', "num.partitions: 'many' is not a whole number"),
        ('[topic]\n"retention.ms" = -5', r"\[topic\] retention.ms: -5 is not"),
    ],
)
def test_a_broken_config_line_is_named(shell: CommandLine, tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text(content)
    said = shell.refused("serve", "--config", str(file), code=2)
    assert str(file) in said
    assert re.search(reason, said)


def test_what_is_not_there_or_not_a_setting_is_said(shell: CommandLine, tmp_path: Path) -> None:
    assert "can't read" in shell.refused("serve", "--config", str(tmp_path / "none.toml"), code=2)
    assert "unknown setting 'x'" in shell.refused("serve", "--set", "x=1", code=2)
    assert "--set 'x' is not NAME=VALUE" in shell.refused("serve", "--set", "x", code=2)


def test_a_producer_whose_broker_dies_says_what_was_not_delivered(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker:
        millstream = CommandLine(broker.address)
        millstream.ok("topic", "create", "t")
        producer = millstream.start(
            *("produce", "t", "--timeout", "2"), stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert producer.stdin is not None
        producer.stdin.write(b"before\n")
        producer.stdin.flush()
        wait_for(lambda: millstream.ok("consume", "t", "-o", ":end") == "before\n", what="it arrives")
        broker.kill()
        _, said = producer.communicate(b"after\n" * 3, timeout=400)
        assert producer.returncode == 1
        lines = said.decode().splitlines()
        assert lines[0] == "millstream: delivered 1 record to t"
        assert "3 records not delivered" in lines[1]


def test_connections_beyond_the_file_limit_are_refused_and_told(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker, contextlib.ExitStack() as stack:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (80, 80))
        first = stack.enter_context(WireClient(broker.address))
        for _ in range(120):
            stack.enter_context(WireClient(broker.address))
        wait_for(lambda: "of its 80 files open" in broker.logged())
        first.create_topic("t", partitions=3)  # files are left for logs
