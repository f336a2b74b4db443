"""A job's own files in its checkpoint directory: the shape of its queries, and the batches it has tried.

    topology.json        what the queries were when the checkpoint was made
    queries/NAME/        Spark's checkpoint of one query
    attempts/NAME        at-most-once: the last batch whose delivery was begun
    views.db             the views, unless they were put elsewhere

A local directory is used directly; any other address (``hdfs://``, ``s3a://``) through Spark's file systems.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.plan import Plan, shapes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHAPES = "topology.json"


class Checkpoint:
    """Where a job remembers how far it is."""

    def __init__(self, location: str) -> None:
        self.location = location.removeprefix("file://").rstrip("/")
        self.local = None if "://" in self.location else Path(self.location).absolute()
        self._spark: SparkSession | None = None

    def attach(self, spark: SparkSession) -> None:
        """From here on, addresses that only Spark can reach are reached."""
        self._spark = spark

    def query(self, name: str) -> str:
        """Spark's checkpoint directory of a query."""
        return f"{self.local or self.location}/queries/{name}"

    def read(self, name: str) -> str | None:
        """A file's text, None if it is not there."""
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
        """Replace a file; whoever reads it sees the old text or the new."""
        if self.local is not None:
            path = self.local / name
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(path.name + ".new")
            fresh.write_text(text)
            os.replace(fresh, path)
            return
        files, path = self._hadoop(name)
        stream = files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()

    def _hadoop(self, name: str) -> tuple[Any, Any]:
        assert self._spark is not None, "attach() comes first"
        java: Any = self._spark._jvm
        path = java.org.apache.hadoop.fs.Path(f"{self.location}/{name}")
        return path.getFileSystem(self._spark._jsc.hadoopConfiguration()), path

    def claim(self, plan: Plan) -> None:
        """Note the topology's shape, or refuse if the checkpoint is of another one."""
        try:
            kept = self.read(_SHAPES)
            if kept is not None:
                changed = differences(json.loads(kept), json.loads(shapes(plan)))
                if changed:
                    raise TopologyError(
                        f"Spark can't continue the checkpoint {self.location}: since it was made, the"
                        " topology has changed\n"
                        + "\n".join(f"  - {line}" for line in changed)
                        + "\nChange the file back, or give a new directory with --checkpoint: the job then"
                        " starts again where its sources say (start=)",
                        where=plan.flow.at,
                    )
            self.write(_SHAPES, shapes(plan))
        except OSError as error:
            raise MillstreamError(f"can't use the checkpoint {self.location}: {error.strerror}") from None

    # ---- at most once -------------------------------------------------------------------------------

    def begin(self, query: str, query_id: str, batch: int) -> bool:
        """Note that a batch's delivery begins; False if it was begun before, and may have happened."""
        name = f"attempts/{query}"
        kept = self.read(name)
        if kept is not None:
            last_id, _, last = kept.partition(" ")
            if last_id == query_id and int(last) >= batch:
                return False
        self.write(name, f"{query_id} {batch}")
        return True


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What changed that a checkpoint depends on, in words. A query more is no change."""
    found = []
    for name, before in old.items():
        after = new.get(name)
        if after is None:
            found.append(f"query {name!r}, which reads {', '.join(before['sources'])}, is gone")
            continue
        if before["sources"] != after["sources"]:
            found.append(
                f"query {name!r} read {', '.join(before['sources'])}; now {', '.join(after['sources'])}"
            )
        if before["times"] != after["times"]:
            found.append(f"query {name!r} goes by other times or lateness than before")
        if before["emit"] != after["emit"]:
            found.append(f"query {name!r} gave {before['emit']} results; now {after['emit']}")
        windows, others = before["windows"], after["windows"]
        if len(windows) != len(others):
            found.append(f"query {name!r} had {len(windows)} windows; now {len(others)}")
        for number, (one, other) in enumerate(zip(windows, others, strict=False), 1):
            found += [
                f"window {number} of query {name!r} was {one[part]}; now {other[part]}"
                for part in ("window", "aggregates")
                if one[part] != other[part]
            ]
    return found
