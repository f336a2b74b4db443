"""Where exported files go: a local directory or any fsspec URL. A file is there whole, or not at all.

A file is written under a name that begins with a dot, made durable, and only then given its final name. A
crash leaves either the first, which the next start removes, or the second. On a local disk that is a sync
of the file, a rename and a sync of the directory. Elsewhere it is the filesystem's ``mv``; in object stores
that is a copy, which is also there whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from typing import IO, Any, Protocol

from millstream.core.errors import ConfigError, MillstreamError

UNFINISHED = "."  # the prefix of files that are not complete


class FileStore(Protocol):
    """A flat directory of files."""

    def names(self) -> Iterable[str]:
        """The names of the files that exist."""

    def create(self, name: str) -> IO[bytes]:
        """A file to write. Its name begins with a dot until it is ``finish``ed."""

    def finish(self, name: str, file: IO[bytes], final: str) -> None:
        """The file is complete: close it, make it durable, give it its name. All is done on return."""

    def remove(self, name: str) -> None: ...

    def close(self) -> None: ...


def open_store(url: str) -> FileStore:
    """The directory or URL, created if it does not exist. Raises MillstreamError."""
    if "://" in url and not url.startswith("file://"):
        return RemoteStore(url)
    return LocalStore(url.removeprefix("file://"))


class LocalStore:
    """A directory on this machine, for one exporter at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            os.makedirs(path, exist_ok=True)
            self._directory = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"can't write to {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._directory)
            raise MillstreamError(f"another export is writing to {path}") from None

    def names(self) -> Iterable[str]:
        return os.listdir(self._path)

    def create(self, name: str) -> IO[bytes]:
        return open(self._at(UNFINISHED + name), "wb")

    def finish(self, name: str, file: IO[bytes], final: str) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.rename(self._at(UNFINISHED + name), self._at(final))
        os.fsync(self._directory)

    def remove(self, name: str) -> None:
        os.remove(self._at(name))

    def close(self) -> None:
        os.close(self._directory)

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name)


class RemoteStore:
    """A place that fsspec supports: s3://, gs://, sftp://, memory://."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            found = fsspec.core.url_to_fs(url)
            self._files: Any = found[0]
            self._path = str(found[1]).rstrip("/")
            self._files.makedirs(self._path, exist_ok=True)
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError(f"can't write to {url}: {error}") from None

    def names(self) -> Iterable[str]:
        self._files.invalidate_cache()
        return [str(path).rpartition("/")[2] for path in self._files.ls(self._path, detail=False)]

    def create(self, name: str) -> IO[bytes]:
        opened: IO[bytes] = self._files.open(f"{self._path}/{UNFINISHED}{name}", "wb")
        return opened

    def finish(self, name: str, file: IO[bytes], final: str) -> None:
        file.close()
        self._files.mv(f"{self._path}/{UNFINISHED}{name}", f"{self._path}/{final}")

    def remove(self, name: str) -> None:
        self._files.rm(f"{self._path}/{name}")

    def close(self) -> None:
        return None
