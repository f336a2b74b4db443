"""A bounded cache of blocks of archived objects, shared by all readers.

- A block is downloaded once, however many readers want it at the same time: the first one fetches it, and
  the others wait for that download.
- The least recently used block is evicted first. Readers keep the blocks that they hold alive, so the
  bound applies to the cache, not to the blocks in use. The number of reader threads bounds those.
- Read-ahead fetches the next blocks before a reader asks for them, on separate threads: readers wait for
  these downloads, so a download must never wait for a free reader thread.

For threads; calls block.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Executor, Future

from millstream.core.errors import ArchiveError
from millstream.log.archive.store import ArchiveStore

BLOCK = 2 * 1024 * 1024
_AHEAD = 2  # blocks

Key = tuple[str, int]  # an object's name, and the number of a block in it


class Blocks:
    """A cache of an archive's blocks; see the module docstring."""

    def __init__(self, store: ArchiveStore, capacity: int, ahead: Executor) -> None:
        self._store = store
        self._capacity = capacity
        self._ahead = ahead
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Key, bytes] = OrderedDict()  # least recently used first
        self._loading: dict[Key, Future[bytes]] = {}
        self.held = 0  # bytes
        self.hits = 0
        self.misses = 0
        self.downloaded = 0  # bytes

    def read(self, name: str, object_size: int, start: int, size: int) -> bytes:
        """Read bytes of an object; fewer than ``size`` only at its end. Raises ArchiveError."""
        end = min(start + size, object_size)
        if start >= end:
            return b""
        first, last = start // BLOCK, (end - 1) // BLOCK
        if first == last:
            return self._get(name, first, object_size)[start - first * BLOCK : end - first * BLOCK]
        parts = [memoryview(self._get(name, number, object_size)) for number in range(first, last + 1)]
        parts[0] = parts[0][start - first * BLOCK :]
        parts[-1] = parts[-1][: end - last * BLOCK]
        return b"".join(parts)

    def read_ahead(self, name: str, object_size: int, position: int) -> None:
        """Fetch the blocks from ``position`` on: a sequential reader wants them next."""
        first = position // BLOCK
        for number in range(first, min(first + _AHEAD, -(-object_size // BLOCK))):
            key = (name, number)
            with self._lock:
                if key in self._blocks or key in self._loading:
                    continue
                found: Future[bytes] = Future()
                self._loading[key] = found
            try:
                self._ahead.submit(self._load, key, object_size, found)
            except RuntimeError:  # the broker is shutting down
                self._load_failed(key, found, ArchiveError("the broker is shutting down"))

    def _get(self, name: str, number: int, object_size: int) -> bytes:
        key = (name, number)
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                self.hits += 1
                return block
            loading = self._loading.get(key)
            mine = loading is None
            if loading is None:
                self.misses += 1
                loading = self._loading[key] = Future()
            else:
                self.hits += 1
        if mine:
            self._load(key, object_size, loading)
        return loading.result()

    def _load(self, key: Key, object_size: int, found: Future[bytes]) -> None:
        name, number = key
        try:
            block = self._store.read(name, number * BLOCK, min((number + 1) * BLOCK, object_size))
        except BaseException as error:
            self._load_failed(key, found, error)
            return
        with self._lock:
            del self._loading[key]
            self.downloaded += len(block)
            self._blocks[key] = block
            self.held += len(block)
            while self.held > self._capacity and len(self._blocks) > 1:
                self.held -= len(self._blocks.popitem(last=False)[1])
        found.set_result(block)

    def _load_failed(self, key: Key, found: Future[bytes], error: BaseException) -> None:
        with self._lock:
            del self._loading[key]
        found.set_exception(error)

    def forget(self, name: str) -> None:
        """Drop the blocks of an object that is gone or has to be read again."""
        with self._lock:
            for key in [key for key in self._blocks if key[0] == name]:
                self.held -= len(self._blocks.pop(key))
