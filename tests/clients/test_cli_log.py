"""``millstream log check`` on directories that a real broker wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import CommandLine
from tests.support.serve import ServeProcess


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker's directory with two batches of ten records in one partition."""
    with ServeProcess(tmp_path / "data") as broker:
        millstream = CommandLine(broker.address)
        millstream.ok("topic", "create", "t")
        for _ in range(2):
            millstream.ok("produce", "t", "-X", "linger.ms=200", stdin="hello\n" * 10)
    return tmp_path / "data"


@pytest.fixture
def shell() -> CommandLine:
    return CommandLine("127.0.0.1:1")


def test_a_sound_directory_is_said_to_be_in_order(shell: CommandLine, data: Path) -> None:
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    shown = shell.ok("log", "check", str(data))
    assert "1 partition, 1 segment, 20 records" in shown
    assert "shut down cleanly" in shown
    assert "everything is in order" in shown
    assert {file: file.read_bytes() for file in data.rglob("*") if file.is_file()} == before


def test_a_flipped_bit_is_found_with_its_file_and_the_exit_code_is_1(shell: CommandLine, data: Path) -> None:
    [log] = data.rglob("*.log")
    content = bytearray(log.read_bytes())
    content[70] ^= 1  # in the first batch, after its header
    log.write_bytes(content)
    done = shell.run("log", "check", str(data))
    assert done.returncode == 1
    assert f"damage: {log} at byte 0" in done.stdout.decode()
    assert "1 damaged place" in done.stdout.decode()
    report = json.loads(shell.run("log", "check", str(data), "--output", "json").stdout)
    assert report["summary"]["damage"] == 1
    assert [(finding["kind"], finding["file"]) for finding in report["findings"]] == [("damage", str(log))]


def test_a_directory_in_use_or_not_there_is_not_checked(shell: CommandLine, tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker:
        assert f"(process {broker.pid})" in shell.refused("log", "check", str(broker.data))
    assert "can't read" in shell.refused("log", "check", str(tmp_path / "none"))


def test_a_damaged_catalogue_is_found_and_the_advice_leads_back_to_a_working_broker(
    shell: CommandLine, data: Path
) -> None:
    path = data / "catalogue.db"
    path.write_bytes(b"rubbish" * 1000)
    command = f"millstream log rebuild-catalogue {data}"
    checked = shell.run("log", "check", str(data))
    assert checked.returncode == 1
    assert f"catalogue: the catalogue {path} is damaged" in checked.stdout.decode()
    assert command in checked.stdout.decode()
    assert command in shell.refused("serve", "--data", str(data), "--listen", "127.0.0.1:0")

    shown = shell.ok("log", "rebuild-catalogue", str(data))
    assert "1 topic with 1 partition" in shown
    assert "not recovered:" in shown
    assert "committed offsets" in shown
    with ServeProcess(data) as broker:
        read = CommandLine(broker.address).ok("consume", "t", "-o", "start:end")
        assert read == "hello\n" * 20
    assert "everything is in order" in shell.ok("log", "check", str(data))
