"""A job's own files in its checkpoint directory, and what of Spark's it has to know.

    topology.json        whose checkpoint it is, what its queries were when it was made, their groups, and the
                         directory that they are in: queries, or another after the views were rebuilt, and the
                         one before
    rebuild.json         the same of a rebuild under way (rebuild.py)
    queries/identity     what no other has: state that is kept outside goes by it
    queries/NAME/        Spark's checkpoint of one query
      metadata           its id
      offsets/N          where batch N ends in each source, written before the batch is begun
    views.db             the views, unless they were put elsewhere

A local directory is used directly; any other address (``hdfs://``, ``s3a://``) through Spark's file systems.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.differences import differences
from millstream.pipeline.offsets import Offsets, from_json
from millstream.pipeline.plan import Plan, shapes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY = "topology.json"
REBUILD = "rebuild.json"


class Checkpoint:
    """Where a job remembers how far it is."""

    def __init__(self, location: str, *, notes: str = TOPOLOGY) -> None:
        self.location = location.removeprefix("file://").rstrip("/")
        self.local = None if "://" in self.location else Path(self.location).absolute()
        self.identity = ""  # no other checkpoint has it; known when it has been claimed
        self.notes = notes
        self._spark: SparkSession | None = None
        self._directory: str | None = None

    def attach(self, spark: SparkSession) -> None:
        """From here on, addresses that only Spark can reach are reached."""
        self._spark = spark

    def inherit(self, other: Checkpoint) -> None:
        """Reach what another reaches."""
        self._spark = other._spark

    def query(self, name: str) -> str:
        """Spark's checkpoint directory of a query."""
        return f"{self.local or self.location}/{self.directory}/{name}"

    @property
    def directory(self) -> str:
        """Where the queries are."""
        if self._directory is None:
            self._directory = str((self.kept() or {}).get("directory", "queries"))
        return self._directory

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

    def remove(self, name: str) -> None:
        """Delete a file, or a directory with all that is in it; it need not be there."""
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

    def claim(self, plan: Plan) -> dict[str, str]:
        """Note the topology's shape, or refuse if the checkpoint is of another one. Returns the consumer
        group of every query: a query keeps the group it had, whatever others came to stand beside it."""
        try:
            kept = self.kept()
            groups = {query.name: plan.group(query) for query in plan.queries}
            if kept is not None:
                if kept["job"] != plan.flow.name:
                    raise TopologyError(
                        f"the checkpoint {self.location} belongs to the job {kept['job']!r}, and this is"
                        f" {plan.flow.name!r}: give it a directory of its own with --checkpoint",
                        where=plan.flow.at,
                    )
                changed = differences(kept["queries"], json.loads(shapes(plan)))
                if changed:
                    raise TopologyError(
                        f"Spark can't continue the checkpoint {self.location}: since it was made, the"
                        " topology has changed\n"
                        + "\n".join(f"  - {line}" for line in changed)
                        + "\nChange the file back, or give a new directory with --checkpoint: the job then"
                        " starts again where its sources say (start=), and builds its state from there"
                        + (
                            "; or compute its views anew and go on from there, with --rebuild"
                            * bool(plan.views)
                        ),
                        where=plan.flow.at,
                    )
                groups |= {name: group for name, group in kept["groups"].items() if name in groups}
            self.identity = self._identity()
            noted = {
                "job": plan.flow.name,
                "queries": json.loads(shapes(plan)),
                "groups": groups,
                "directory": self.directory,
            }
            if kept is not None and "before" in kept:
                noted["before"] = kept["before"]
            self.note(noted)
            return groups
        except OSError as error:
            raise MillstreamError(f"can't use the checkpoint {self.location}: {error.strerror}") from None

    def in_use(self) -> bool:
        """Whether a query of it has ever been started."""
        kept = self.kept()
        return kept is not None and any(self.query_id(name) is not None for name in kept["queries"])

    def _identity(self) -> str:
        name = f"{self.directory}/identity"
        known = self.read(name)
        if known is None:
            known = uuid.uuid4().hex
            self.write(name, known)
        return known

    def clean_up(self) -> None:
        """Remove the directory that another has taken the place of."""
        kept = self.kept()
        if kept is not None and "before" in kept:
            self.remove(kept.pop("before"))
            self.note(kept)

    def note(self, noted: dict[str, Any]) -> None:
        self.write(self.notes, json.dumps(noted, indent=2, sort_keys=True))
        self._directory = noted["directory"]

    def kept(self) -> dict[str, Any] | None:
        """What was noted when the checkpoint was made; None if there is none."""
        text = self.read(self.notes)
        if text is None:
            return None
        try:
            kept: dict[str, Any] = json.loads(text)
            if kept.keys() >= {"job", "queries", "groups"}:
                return kept
        except ValueError:
            pass
        raise MillstreamError(
            f"{self.location}/{self.notes} can't be read: the checkpoint is damaged, or not one of"
            " millstream's. Give another directory with --checkpoint"
        )

    # ---- Spark's ------------------------------------------------------------------------------------

    def query_id(self, query: str) -> str | None:
        """The id that Spark gave a query with its first start; None if that is still to come."""
        text = self.read(f"{self.directory}/{query}/metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged(f"{self.directory}/{query}/metadata") from None

    def offsets(self, query: str, batch: int) -> Offsets:
        """Where a batch ends. Of a topic that is read twice, what has been read both times."""
        name = f"{self.directory}/{query}/offsets/{batch}"
        text = self.read(name)
        found: Offsets = {}
        try:
            for line in (text or "").splitlines()[2:]:  # after the format's version and the batch's settings
                for place, offset in from_json(json.loads(line) if line != "-" else {}).items():
                    found[place] = min(offset, found.get(place, offset))
        except (ValueError, AttributeError, TypeError):
            raise self._damaged(name) from None
        if text is None:
            raise self._damaged(name)
        return found

    def time(self, query: str, batch: int) -> int:
        """When a batch was planned, in microseconds: the same however often it is run."""
        name = f"{self.directory}/{query}/offsets/{batch}"
        try:
            return 1000 * int(json.loads((self.read(name) or "").splitlines()[1])["batchTimestampMs"])
        except (ValueError, KeyError, IndexError, TypeError):
            raise self._damaged(name) from None

    def _damaged(self, name: str) -> MillstreamError:
        return MillstreamError(f"{self.location}/{name} can't be read: the checkpoint is damaged")
