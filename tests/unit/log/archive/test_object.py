"""An archived segment's object: written from files, told to be whole, and told when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.core.errors import ArchiveError, ConfigError
from millstream.log.archive.object import (
    INDEX,
    LOG,
    TIME_INDEX,
    ArchivedSegment,
    ObjectWriter,
    SectionSource,
    check_written,
    read_manifest,
)
from millstream.log.archive.store import ArchiveStore
from millstream.log.storage.memory import MemoryFile, MemoryFiles
from tests.support.archives import keeps_its_promises, memory_url, objects

NAME = "cluster/t-1/0/00000000000000000007-abc"


def a_file(data: bytes) -> MemoryFile:
    file = MemoryFile(MemoryFiles())
    file.pwrite(data, 0)
    return file


def writing(log: bytes = b"batches" * 100) -> ObjectWriter:
    planned = ArchivedSegment(NAME, 7, 107, 1000, 900, 999, 0, 0, {})
    sources = [
        SectionSource(LOG, a_file(log), len(log)),
        SectionSource(INDEX, a_file(b"index"), 5),
        SectionSource(TIME_INDEX, a_file(b""), 0),
    ]
    return ObjectWriter(planned, sources, {"topic": "t", "partition": 0})


def put(store: ArchiveStore) -> ArchivedSegment:
    each = writing()
    store.put(NAME + ".segment", each.chunks())
    return check_written(store, each)


def test_what_was_written_is_what_the_object_says_of_itself() -> None:
    store = ArchiveStore(memory_url())
    written = put(store)
    found = read_manifest(store, written.object)
    assert found is not None
    assert found[0] == written
    assert found[1]["topic"] == "t"
    assert written.size == 700
    position, size, _ = written.sections[INDEX]
    assert store.read(written.object, position, position + size) == b"index"


def test_an_object_that_was_cut_off_anywhere_is_not_whole() -> None:
    url = memory_url()
    store = ArchiveStore(url)
    written = put(store)
    data = objects(url)[written.object]
    for size in range(len(data)):
        store.put(written.object, [data[:size]])
        assert read_manifest(store, written.object) is None, size


@pytest.mark.parametrize("place", [-1, -10, -14, -30])
def test_an_object_whose_end_is_damaged_is_not_whole(place: int) -> None:
    url = memory_url()
    store = ArchiveStore(url)
    written = put(store)
    data = bytearray(objects(url)[written.object])
    data[place] ^= 1
    store.put(written.object, [bytes(data)])
    assert read_manifest(store, written.object) is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer"])
def test_what_is_read_back_otherwise_than_it_was_written_is_an_error(damage: str) -> None:
    url = memory_url()
    store = ArchiveStore(url)
    each = writing()
    data = bytearray(b"".join(each.chunks()))
    if damage == "flipped":
        data[3] ^= 1
    store.put(
        NAME + ".segment", [bytes(data[:-1] if damage == "cut" else data + b"x" * (damage == "longer"))]
    )
    with pytest.raises(ArchiveError, match=r"truncated|read back"):
        check_written(store, each)


def test_a_file_that_is_shorter_than_it_should_be_is_an_error() -> None:
    planned = ArchivedSegment(NAME, 7, 107, 1000, 900, 999, 0, 0, {})
    with pytest.raises(ArchiveError, match="has 3 bytes, not 4"):
        list(ObjectWriter(planned, [SectionSource(LOG, a_file(b"abc"), 4)], {}).chunks())


@pytest.mark.parametrize("place", ["memory", "directory", "relative", "file URL"])
def test_a_storage_keeps_its_promises(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "not there yet" / "archive"
    url = {
        "memory": memory_url(),
        "directory": str(directory),
        "relative": "archive",
        "file URL": directory.as_uri().replace("%20", " "),
    }[place]
    keeps_its_promises(ArchiveStore(url))


@pytest.mark.parametrize(
    ("url", "options", "what"),
    [
        ("no-such-protocol://x", "", "millstream.archive.url"),
        ("memory://x", "{", "not JSON"),
        ("memory://x", "[]", "not a JSON object"),
    ],
)
def test_an_archive_that_can_never_be_used_is_told_at_the_start(url: str, options: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        ArchiveStore(url, options)
