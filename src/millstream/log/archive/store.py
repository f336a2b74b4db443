"""The archive as a store of whole objects: a directory, or any URL that fsspec supports.

The guarantees, whatever the storage is:

- An object is written once, under a name that was never used before, and never changes. If writing fails,
  part of it may remain: its name is not given to any reader, and it is removed.
- ``put`` returns when the object is durable: in a directory of this machine it is synced.
- ``remove`` of a missing object does nothing, so a caller that does not know whether it succeeded repeats it.
- Every failure is an ArchiveError. An ArchiveMissing among them means that the object does not exist; any
  other may be temporary.

The calls block; they are for threads. Each thread has its own connection: some file systems' connections
can't be shared.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from millstream.core.errors import ArchiveError, ArchiveMissing, ConfigError

_PART = 8 * 1024 * 1024  # bytes per part, for storage that uploads in parts


class ArchiveStore:
    """The objects below one URL. Names contain slashes and don't start with one."""

    def __init__(self, url: str, options: str = "") -> None:
        """``options`` is a JSON object for fsspec. Raises ConfigError; does not check whether the storage
        responds."""
        self.url = url
        try:
            self._options = json.loads(options or "{}")
        except ValueError as error:
            raise ConfigError(f"millstream.archive.options is not JSON: {error}") from None
        if not isinstance(self._options, dict):
            raise ConfigError("millstream.archive.options is not a JSON object")
        self._of_thread = threading.local()
        try:
            self._connect()
        except ImportError as error:
            raise ConfigError(f"millstream.archive.url: {url} needs a package: {error}") from None
        except (ValueError, TypeError) as error:
            raise ConfigError(f"millstream.archive.url: {url} can't be used: {error}") from None
        except Exception:  # noqa: S110  (it connects at once and does not respond now: that may pass)
            pass

    def _connect(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        # By default fsspec returns the same instance again, even after its connection is lost.
        fs, root = url_to_fs(self.url, skip_instance_cache=True, **self._options)
        self._of_thread.found = fs, root.rstrip("/")
        return self._of_thread.found  # type: ignore[no-any-return]

    def _at(self, name: str) -> tuple[Any, str]:
        fs, root = getattr(self._of_thread, "found", None) or self._connect()
        return fs, f"{root}/{name}"

    @contextlib.contextmanager
    def _told_apart(self, doing: str, name: str) -> Iterator[None]:
        """Turn any exception of a file system into an ArchiveError."""
        try:
            yield
        except ArchiveError:
            raise
        except FileNotFoundError:
            raise ArchiveMissing(f"there is no {name} in the archive {self.url}") from None
        except Exception as error:
            self._of_thread.__dict__.clear()  # reconnect after a lost connection
            what = str(error) or type(error).__name__
            raise ArchiveError(f"can't {doing} {name} in the archive {self.url}: {what}") from error

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        with self._told_apart("write", name):
            fs, path = self._at(name)
            parent = path.rpartition("/")[0]
            if not fs.exists(parent):  # file systems where directories exist apart from names
                fs.makedirs(parent, exist_ok=True)
            with fs.open(path, "wb", block_size=_PART) as file:
                for chunk in chunks:
                    file.write(chunk)
            if _is_local(fs):
                _sync(path, upto=os.path.dirname(path[: -len(name) - 1]))

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read the bytes from ``start`` up to ``end``, all of them."""
        with self._told_apart("read", name):
            fs, path = self._at(name)
            data: bytes = fs.cat_file(path, start=start, end=end)
        if len(data) != end - start:
            raise ArchiveError(
                f"{name} in the archive {self.url} is truncated: of the bytes from {start} to {end}, only "
                f"{len(data)} are there"
            )
        return data

    def size(self, name: str) -> int:
        with self._told_apart("look at", name):
            fs, path = self._at(name)
            fs.invalidate_cache()
            return int(fs.info(path)["size"])

    def names(self, prefix: str) -> list[str]:
        """The names of all objects below a prefix. The prefix ends where a slash follows."""
        with self._told_apart("list", prefix):
            fs, path = self._at(prefix)
            fs.invalidate_cache()
            try:
                found = fs.find(path)
            except FileNotFoundError:
                return []
            return sorted(f"{prefix}/{str(each)[len(path) :].lstrip('/')}" for each in found)

    def remove(self, name: str) -> None:
        with self._told_apart("remove", name), contextlib.suppress(FileNotFoundError):
            fs, path = self._at(name)
            fs.rm_file(path)

    def remove_all(self, prefix: str) -> None:
        """Remove everything below a prefix."""
        with self._told_apart("remove", prefix), contextlib.suppress(FileNotFoundError):
            fs, path = self._at(prefix)
            fs.invalidate_cache()
            fs.rm(path, recursive=True)


def _is_local(fs: Any) -> bool:
    protocol = fs.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _sync(path: str, *, upto: str) -> None:
    """Sync a file and its parent directories up to ``upto``, which existed before: some are new."""
    while len(path) >= len(upto):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        if path == "/":
            return
        path = os.path.dirname(path)
