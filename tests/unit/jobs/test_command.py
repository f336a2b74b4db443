"""Commands as records: what is not a command for this version is left alone."""

from __future__ import annotations

import json

import pytest

from millstream.jobs.command import Command, decoded, encoded
from tests.unit.jobs.test_board import status


def test_a_command_is_for_one_run_and_comes_back_as_it_was() -> None:
    command = Command.to(status("r7"), "restart", "anna@box")
    assert (command.job, command.run, command.action) == ("fraud", "r7", "restart")
    assert decoded(encoded(command)) == command
    assert Command.to(status("r7"), "restart", "anna@box").id != command.id


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"action": "explode"}, {"run": 7}, {"job": None}, {"id": ["x"]}]
)
def test_what_this_version_does_not_know_is_no_command(change: dict[str, object]) -> None:
    told = json.loads(encoded(Command.to(status(), "stop", "anna@box")))
    assert decoded(json.dumps({**told, "more": 1}).encode()) is not None, "other fields may be added"
    assert decoded(json.dumps({**told, **change}).encode()) is None


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"7", b'{"version": 1}'])
def test_rubbish_is_no_command(value: bytes | None) -> None:
    assert decoded(value) is None
