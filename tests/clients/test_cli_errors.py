"""What goes wrong is one line that says what to do, never a traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.command import CommandLine


@pytest.fixture
def nowhere() -> Iterator[CommandLine]:
    """An address that is taken, but where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield CommandLine(f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "list"),
        ("topic", "create", "t"),
        ("group", "lag", "g"),
        ("produce", "t"),
        ("consume", "t"),
    ],
    ids=" ".join,
)
def test_no_broker_there_is_said_with_how_to_start_one(
    nowhere: CommandLine, command: tuple[str, ...]
) -> None:
    said = nowhere.refused(*command)
    assert f"no broker answers at {nowhere.address}" in said
    assert "start one with `millstream serve` or pass --broker" in said


def test_something_that_is_not_a_broker_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = CommandLine(f"127.0.0.1:{silent.getsockname()[1]}")
        assert "no broker answers at" in command.refused("topic", "list")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("topik",), "No such command 'topik'. Did you mean 'topic'?"),
        (("topic", "create"), "Missing argument"),
        (("topic", "create", "t", "-p", "x"), "'--partitions' / '-p': 'x' is not a whole number;"),
        (("topic", "create", "t", "-p", "0"), "0 is less than 1;"),
        (("produce", "t", "--timeout", "soon"), "'--timeout': 'soon' is not a number;"),
        (("produce", "t", "--acks", "7"), "'--acks': '7' is not one of '0', '1', 'all';"),
        (("topic", "create", "t", "-c", "x"), "--config 'x' is not NAME=VALUE"),
        (("topic", "list", "-b", "nowhere"), "the broker's address: 'nowhere' is not HOST:PORT"),
        (
            ("topic", "list", "-b", "127.0.0.1:99999"),
            "'99999' is not a port; ports are the numbers 1 to 65535",
        ),
        (("topic", "list", "-X", "no.such=1"), "No such configuration property"),
        (("consume",), "say which topics to read"),
        (("consume", "t", "-o", "1:x"), "'1:x' is not a range"),
        (("consume", "t", "-f", "%q"), "'%q' is not valid in a template"),
        (("consume", "t", "-J", "-f", "%s"), "exclude each other"),
        (("consume", "--pattern", "("), "not a regular expression"),
        (("produce", "t", "-H", "x"), "--header 'x' is not NAME=VALUE"),
        (("produce", "t", "--format", "json", "-K", ":"), "--key-separator requires --format lines"),
        (("group", "seek", "g", "--to", "then"), "'then' is not a position"),
        (("topic", "list", "--profile", "none"), "can't read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_wrong_command_line_is_refused_with_exit_code_2(
    nowhere: CommandLine, command: tuple[str, ...], reason: str
) -> None:
    nowhere.environment["MILLSTREAM_CLIENT_FILE"] = "/nowhere/client.toml"
    assert reason in nowhere.refused(*command, code=2)
