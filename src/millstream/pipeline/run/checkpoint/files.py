"""The files of a checkpoint directory, wherever it is.

A local directory is used directly. Any other address (``hdfs://``, ``s3a://``) is reached through Spark's
file systems.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointFiles:
    """Files by their path in the directory. ``local`` is the directory, if it is a local one."""

    def __init__(self, location: str) -> None:
        self.location = location.removeprefix("file://").rstrip("/")
        self.local = None if "://" in self.location else Path(self.location).absolute()
        self._spark: SparkSession | None = None

    def attach(self, spark: SparkSession) -> None:
        """Give access to addresses that only Spark can reach."""
        self._spark = spark

    def names(self, directory: str) -> list[str]:
        """The names of the files in a directory; none if it does not exist."""
        if self.local is not None:
            path = self.local / directory
            return [one.name for one in path.iterdir()] if path.exists() else []
        files, path = self._hadoop(directory)
        return [str(one.getPath().getName()) for one in files.listStatus(path)] if files.exists(path) else []

    def read(self, name: str) -> str | None:
        """The text of a file; None if the file does not exist."""
        if self.local is not None:
            path = self.local / name
            return path.read_text() if path.exists() else None
        files, path = self._hadoop(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a file. A reader sees the old text or the new, never a part, even if this run is killed."""
        if self.local is not None:
            path = self.local / name
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(path.name + ".new")
            fresh.write_text(text)
            os.replace(fresh, path)
            return
        files, path = self._hadoop(name)
        fresh = path.suffix(".new")
        stream = files.create(fresh, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        # FileContext renames over an existing file; FileSystem, which the rest goes through, refuses to.
        assert self._spark is not None
        hadoop: Any = self._spark._jvm.org.apache.hadoop.fs
        overwrite = self._spark._sc._gateway.new_array(hadoop.Options.Rename, 1)
        overwrite[0] = hadoop.Options.Rename.OVERWRITE
        configuration = self._spark._jsc.hadoopConfiguration()
        hadoop.FileContext.getFileContext(path.toUri(), configuration).rename(fresh, path, overwrite)

    def remove(self, name: str) -> None:
        """Delete a file, or a directory with everything in it. It need not exist."""
        if self.local is not None:
            path = self.local / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            return
        files, path = self._hadoop(name)
        files.delete(path, True)

    def _hadoop(self, name: str) -> tuple[Any, Any]:
        assert self._spark is not None, "attach() comes first"
        java: Any = self._spark._jvm
        path = java.org.apache.hadoop.fs.Path(f"{self.location}/{name}")
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path
