"""A job's own files in its checkpoint directory, and what it has to know of Spark's files there.

    topology.json        whose checkpoint it is, what its queries were when it was made, their groups, and the
                         directory that they are in: queries, or another one after the views were rebuilt; for
                         some minutes after that, also the one before
    rebuild.json         the same for a rebuild in progress (rebuild.py)
    queries/identity     unique to this checkpoint: state that is kept outside of it is found by this id
    queries/NAME/        Spark's checkpoint of one query
      metadata           its id
      offsets/N          where batch N ends in each source, written before the batch is begun
    views.db             the views, unless they were put elsewhere

A local directory is used directly. Any other address (``hdfs://``, ``s3a://``) is reached through Spark's
file systems.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.connector.offsets import Offsets, finish_in, from_json
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.planning.continuing import reset as give_up
from millstream.pipeline.planning.differences import differences
from millstream.pipeline.planning.identity import source_identity
from millstream.pipeline.planning.plan import Plan, plan, shapes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Claim:
    """What a run needs to go on from a checkpoint."""

    plan: Plan
    groups: dict[str, str]  # the consumer group of every query; a query keeps the one that it had
    numbers: dict[str, int]  # by which operators know sources
    resets: dict[str, dict[str, int]]  # by query, how often each operator has given up its state
    # The columns of operators' inputs, by query and operator (evolving.py).
    columns: dict[str, dict[str, list[str]]] = field(default_factory=dict)


TOPOLOGY = "topology.json"
REBUILD = "rebuild.json"


class Checkpoint:
    """A job's checkpoint directory."""

    def __init__(self, location: str, *, notes: str = TOPOLOGY) -> None:
        self.location = location.removeprefix("file://").rstrip("/")
        self.local = None if "://" in self.location else Path(self.location).absolute()
        self.identity = ""  # unique to this checkpoint; known once it has been claimed
        self.notes = notes
        self._spark: SparkSession | None = None
        self._directory: str | None = None

    def attach(self, spark: SparkSession) -> None:
        """Give access to addresses that only Spark can reach."""
        self._spark = spark

    def rebuild(self) -> dict[str, Any] | None:
        """The notes of a rebuild of these views; None if no rebuild is in progress."""
        new = Checkpoint(self.location, notes=REBUILD)
        new.inherit(self)
        return new.kept()

    def inherit(self, other: Checkpoint) -> None:
        """Take over another checkpoint's access to Spark's file systems."""
        self._spark = other._spark

    def query(self, name: str) -> str:
        """The address of Spark's checkpoint directory of a query."""
        return f"{self.local or self.location}/{self.directory}/{name}"

    @property
    def directory(self) -> str:
        """The directory that holds the queries' checkpoints."""
        if self._directory is None:
            self._directory = str((self.kept() or {}).get("directory", "queries"))
        return self._directory

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

    def claim(self, flow: Topology, reset: Sequence[str] = ()) -> Claim:
        """How the topology goes on from the checkpoint; refused if the checkpoint is another topology's.
        The notes are not changed before ``bind``: a run that fails during planning must not get in the way
        of the next."""
        try:
            kept = self.kept()
            claim = self._continued(flow, kept, reset) if kept is not None else Claim(plan(flow), {}, {}, {})
            self.identity = self._identity()
        except OSError as error:
            raise self._unusable(error) from None
        for query in claim.plan.queries:
            claim.groups.setdefault(query.name, claim.plan.group(query))
        numbers = claim.numbers
        for source in flow.sources:
            # Equal sources are told apart by how many equal ones come before them.
            same = [one for one in flow.sources if source_identity(one) == source_identity(source)]
            name = f"{source_identity(source)} {same.index(source)}"
            flow.source_numbers[source.name] = numbers.setdefault(name, len(numbers))
        return claim

    def _continued(self, flow: Topology, kept: dict[str, Any], reset: Sequence[str]) -> Claim:
        if kept["job"] != flow.name:
            raise TopologyError(
                f"the checkpoint {self.location} belongs to the job {kept['job']!r}, and this is"
                f" {flow.name!r}: give it a directory of its own with --checkpoint",
                where=flow.at,
            )
        queries = {name: shape for name, shape in kept["queries"].items() if self._begun(name)}
        given_up: set[str] = set()
        if reset:
            operators = {
                one: shape
                for entry in shapes(plan(flow)).values()
                for one, shape in entry["operators"].items()
            }
            given_up = give_up(queries, reset, operators)
        made = plan(flow, queries)
        changed = differences(queries, shapes(made))
        if changed:
            of_operators = any(  # True if a query with stateful operators has changed
                shape["operators"] and differences({name: shape}, shapes(made))
                for name, shape in queries.items()
            )
            raise TopologyError(
                f"the checkpoint {self.location} can't be continued: since it was made, the topology has"
                " changed\n"
                + "\n".join(f"  - {line}" for line in changed)
                + "\nChange the file back; "
                + "or give up the state of an operator, with --reset-operator NAME; " * of_operators
                + "or give a new directory with --checkpoint: the job then starts again where its sources say"
                " (start=)"
                + ", and builds its state from there" * any(shape["operators"] for shape in queries.values())
                + "; or rebuild its views and go on from there, with --rebuild" * bool(made.views)
                + ". An operator that has a name (name=) keeps its state when the rows that it takes change"
                * of_operators,
                where=flow.at,
            )
        resets = {name: dict(shape.get("resets", {})) for name, shape in queries.items()}
        groups = {
            query.name: kept["groups"][query.name] for query in made.queries if query.name in kept["groups"]
        }
        columns = {
            name: {one: text for one, text in shape.get("columns", {}).items() if one not in given_up}
            for name, shape in queries.items()
        }
        return Claim(made, groups, dict(kept.get("sources", {})), resets, columns)

    def bind(self, claim: Claim) -> None:
        """Note what the queries are, just before they are started."""
        queries = shapes(claim.plan)
        for name, shape in queries.items():
            shape["resets"] = claim.resets.get(name, {})
            shape["columns"] = claim.columns.get(name, {})
        noted = {
            "job": claim.plan.flow.name,
            "queries": queries,
            "groups": claim.groups,
            "sources": claim.numbers,
            "directory": self.directory,
        }
        try:
            kept = self.kept()
            if kept is not None and "before" in kept:
                noted["before"] = kept["before"]
            self.note(noted)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> MillstreamError:
        return MillstreamError(f"can't use the checkpoint {self.location}: {error.strerror}")

    def _begun(self, query: str) -> bool:
        """True if the query has ever planned a batch. A query that has not keeps no state."""
        name = f"{self.directory}/{query}/offsets"
        if self.local is not None:
            path = self.local / name
            return path.exists() and any(one.name.isdigit() for one in path.iterdir())
        files, path = self._hadoop(name)
        return bool(files.exists(path)) and any(
            str(one.getPath().getName()).isdigit() for one in files.listStatus(path)
        )

    def in_use(self) -> bool:
        """True if one of the queries has ever been started."""
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
        """Remove the queries' previous directory, once another one has replaced it."""
        kept = self.kept()
        if kept is not None and "before" in kept:
            self.remove(kept.pop("before"))
            self.note(kept)

    def note(self, noted: dict[str, Any]) -> None:
        self.write(self.notes, json.dumps(noted, indent=2, sort_keys=True))
        self._directory = noted["directory"]

    def kept(self) -> dict[str, Any] | None:
        """The notes; None if there are none yet."""
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
        """The id that Spark gave the query at its first start; None if it has never been started."""
        text = self.read(f"{self.directory}/{query}/metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged(f"{self.directory}/{query}/metadata") from None

    def offsets(self, query: str, batch: int) -> Offsets:
        """Where a batch ends. For a topic that is read twice, this is what both have read."""
        found: Offsets = {}
        for source in self._logged(query, batch)[1]:
            for place, offset in from_json(source).items():
                found[place] = min(offset, found.get(place, offset))
        return found

    def time(self, query: str, batch: int) -> int:
        """When a batch was planned, in microseconds. A batch that is run again has the same time."""
        return 1000 * int(self._logged(query, batch)[0]["batchTimestampMs"])

    def finish(self, query: str, batch: int) -> int | None:
        """The event time to which a batch carries its operators, in microseconds; None if it carries none."""
        told = [finish_in(source) for source in self._logged(query, batch)[1]]
        return max((one for one in told if one is not None), default=None)

    def carry_watermark(self, query: str, batch: int, by_ms: int) -> None:
        """Plan one more batch, without records and with Spark's watermark ``by_ms`` later. Spark runs a
        batch that is in its log of offsets but was not committed, so the query closes its windows when it
        starts next."""
        settings, sources = self._logged(query, batch)
        name = f"{self.directory}/{query}/commits/{batch}"
        try:
            committed = json.loads((self.read(name) or "").splitlines()[1])["nextBatchWatermarkMs"]
        except (ValueError, KeyError, IndexError, TypeError):
            raise self._damaged(name) from None
        settings["batchWatermarkMs"] = max(settings["batchWatermarkMs"], committed) + by_ms
        settings["batchTimestampMs"] += 1
        lines = ["v1", json.dumps(settings), *(json.dumps(source) if source else "-" for source in sources)]
        self.write(f"{self.directory}/{query}/offsets/{batch + 1}", "\n".join(lines))

    def _logged(self, query: str, batch: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A batch in Spark's log of offsets: its settings, and where it ends in each source."""
        name = f"{self.directory}/{query}/offsets/{batch}"
        try:
            version, settings, *sources = (self.read(name) or "").splitlines()
            found = json.loads(settings)
            if version == "v1" and "batchTimestampMs" in found:
                return found, [{} if source == "-" else json.loads(source) for source in sources]
        except (ValueError, TypeError):
            pass
        raise self._damaged(name)

    def _damaged(self, name: str) -> MillstreamError:
        return MillstreamError(f"{self.location}/{name} can't be read: the checkpoint is damaged")
