"""Archives for tests: in memory, counting requests, failing on demand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

import fsspec
import pytest

from millstream.core.errors import ArchiveError, ArchiveMissing
from millstream.log.archive.store import ArchiveStore
from tests.support.wire_client import LIST_OFFSETS, WireClient


def memory_url() -> str:
    """The URL of a new, empty archive in this process."""
    return f"memory://archive-{uuid.uuid4().hex}"


def objects(url: str) -> dict[str, bytes]:
    """The objects in an archive by name, without its marker files (``archive.json``)."""
    fs, root = fsspec.core.url_to_fs(url)
    fs.invalidate_cache()
    found = fs.find(root) if fs.exists(root) else []
    return {
        name[len(root) :].lstrip("/"): fs.cat_file(name)
        for name in found
        if not name.endswith("archive.json")
    }


def keeps_its_promises(store: ArchiveStore) -> None:
    """Check what every archive store must do, whatever the storage behind it."""
    data = bytes(range(256)) * 100
    store.put("c/t-1/0/first", [data[:1000], data[1000:]])
    store.put("c/t-1/1/second", [b"second"])
    store.put("c/t-10/0/third", [b""])
    assert store.size("c/t-1/0/first") == len(data)
    assert store.read("c/t-1/0/first", 0, len(data)) == data
    assert store.read("c/t-1/0/first", 999, 1001) == data[999:1001]
    with pytest.raises(ArchiveError, match=r"truncated|can't read"):
        store.read("c/t-1/0/first", len(data) - 1, len(data) + 1)
    assert store.size("c/t-10/0/third") == 0
    assert store.names("c/t-1") == ["c/t-1/0/first", "c/t-1/1/second"]
    assert store.names("c/t-1/0") == ["c/t-1/0/first"]
    store.remove("c/t-1/0/first")
    store.remove("c/t-1/0/first")
    with pytest.raises(ArchiveMissing):
        store.size("c/t-1/0/first")
    with pytest.raises(ArchiveMissing):
        store.read("c/t-1/0/first", 0, 1)
    store.remove_all("c/t-1")
    store.remove_all("c/t-1")
    assert store.names("c/t-1") == []
    assert store.names("c") == ["c/t-10/0/third"]


class Unreliable(ArchiveStore):
    """A store that records its requests, and can be unreachable or fail at a given step."""

    def __init__(self, url: str, options: str = "") -> None:
        super().__init__(url, options if not url.startswith("memory:") else "")
        self.is_away = False
        self.before_step: Callable[[str], None] = lambda what: None
        self.asked: list[str] = []

    def _step(self, what: str) -> None:
        if self.is_away:
            raise ArchiveError("the archive is away, says the test")
        self.asked.append(what)
        self.before_step(what)

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self._step(f"put {name}")
        super().put(name, chunks)

    def read(self, name: str, start: int, end: int) -> bytes:
        self._step(f"read {name} {start} {end}")
        return super().read(name, start, end)

    def size(self, name: str) -> int:
        self._step(f"size {name}")
        return super().size(name)

    def names(self, prefix: str) -> list[str]:
        self._step(f"names {prefix}")
        return super().names(prefix)

    def remove(self, name: str) -> None:
        self._step(f"remove {name}")
        super().remove(name)

    def remove_all(self, prefix: str) -> None:
        self._step(f"remove_all {prefix}")
        super().remove_all(prefix)


def local_start(address: str, topic: str) -> int:
    """The oldest offset on the broker's own disk."""
    with WireClient(address) as client:
        wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -4}
        topics = [{"name": topic, "partitions": [wanted]}]
        found = client.call(LIST_OFFSETS, 9, replica_id=-1, isolation_level=0, topics=topics)
        return int(found.topics[0].partitions[0].offset)
