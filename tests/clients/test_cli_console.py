"""``millstream console`` and ``millstream serve --console``."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import httpx
import pytest

from millstream import Broker
from millstream.console.run import Console
from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.waiting import wait_for


def told(url: str) -> Any:
    try:
        return httpx.get(url).json()
    except (httpx.TransportError, ValueError):
        return None


def test_one_command_serves_a_broker_and_a_console() -> None:
    port = free_port()
    shell = CommandLine("127.0.0.1:1")
    process = shell.start("serve", "--listen", "127.0.0.1:0", "--console", f":{port}", stdout=subprocess.PIPE)
    assert process.stdout is not None
    url = f"http://127.0.0.1:{port}/api/overview"
    try:
        address = process.stdout.readline().decode().strip()
        told_now = wait_for(lambda: told(url), what="the console answers")
        assert told_now["address"] == address
        with httpx.stream("GET", f"http://127.0.0.1:{port}/live") as page:
            assert page.status_code == 200, "an open page does not hold up the end"
            process.send_signal(signal.SIGTERM)
            assert process.wait(400) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
    assert told(url) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_and_ends_in_order(number: signal.Signals) -> None:
    with Broker() as broker:
        shell = CommandLine(broker.address)
        process = shell.start(
            "console", "--listen", "127.0.0.1:0", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        assert httpx.get(f"{url}/api/overview").json()["address"] == broker.address
        process.send_signal(number)
        _, said = process.communicate(timeout=400)
        assert process.returncode == 0
        assert b"Traceback" not in said


def test_what_it_is_told_wrongly_is_said() -> None:
    shell = CommandLine("127.0.0.1:1")
    assert "'nowhere' is not HOST:PORT" in shell.refused("console", "--listen", "nowhere", code=2)
    assert "'nowhere' is not HOST:PORT" in shell.refused("console", "--broker", "nowhere", code=2)


def test_it_shows_the_same_of_either_broker(address: str, group: str, name: str) -> None:
    with Console(address) as console:

        def detailed() -> Any:
            overview = told(f"{console.url}/api/overview")
            return overview if overview["detailed"] and overview["groups"] else None

        overview = wait_for(detailed, what="sizes and groups are known")
        assert overview["address"] == address
        assert overview["disks"][0]["free_bytes"] > 0
        (topic,) = told(f"{console.url}/api/topics?search={name}")["topics"]
        assert topic["records"] == 13
        assert topic["bytes"] > 0
        assert topic["leaderless"] == topic["under_replicated"] == []
