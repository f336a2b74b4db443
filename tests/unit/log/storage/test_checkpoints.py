from __future__ import annotations

import pytest

from millstream.log.storage.checkpoints import read_offsets, write_offsets
from millstream.log.storage.files import read_file
from millstream.log.storage.memory import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data")
    return files


def test_the_file_is_kafkas(files: MemoryFiles) -> None:
    write_offsets(files, "/data/c", {("b", 1): 7, ("a-b", 10): 2**40})
    assert read_file(files, "/data/c") == b"0\n2\na-b 10 1099511627776\nb 1 7\n"


def test_what_is_written_is_read(files: MemoryFiles) -> None:
    offsets = {("a", 0): 0, ("a", 1): 5, ("b.c_d-e", 3): 2**62}
    write_offsets(files, "/data/c", offsets)
    assert read_offsets(files, "/data/c") == offsets


def test_a_missing_file_holds_nothing(files: MemoryFiles) -> None:
    assert read_offsets(files, "/data/c") == {}


@pytest.mark.parametrize("damaged", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"\xff\xfe", b"0\nx\n"])
def test_a_damaged_file_holds_nothing_and_says_so(
    files: MemoryFiles, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files.open("/data/c", create=True).pwrite(damaged, 0)
    assert read_offsets(files, "/data/c") == {}
    assert "/data/c is damaged" in caplog.text


def test_a_damaged_line_does_not_take_the_others_along(files: MemoryFiles) -> None:
    files.open("/data/c", create=True).pwrite(b"0\n3\na 0 1\nb zero 2\nc 0 3\n", 0)
    assert read_offsets(files, "/data/c") == {("a", 0): 1, ("c", 0): 3}
