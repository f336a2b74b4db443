"""What a job notes in its checkpoint directory: what its queries are, and how it may continue from there.

    topology.json        whose checkpoint it is, what its queries were when it was made, their groups, and the
                         directory that they are in: queries, or another one after the views were rebuilt; for
                         some minutes after that, also the one before
    rebuild.json         the same for a rebuild in progress (rebuild.py)
    queries/identity     unique to this checkpoint: state that is kept outside of it is found by this id
    queries/NAME/        Spark's checkpoint of one query
      metadata           its id
      offsets/N          where batch N ends in each source, written before the batch is begun
    views.db             the views, unless they were put elsewhere

The files are read and written by ``files``. What is Spark's among them is read by ``query_logs``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.planning.differences import differences
from millstream.pipeline.planning.edited_queries import reset as give_up
from millstream.pipeline.planning.plan import Plan, plan, shapes
from millstream.pipeline.run.checkpoint.files import CheckpointFiles
from millstream.pipeline.run.checkpoint.query_logs import QueryLogs


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a run needs to continue from a checkpoint."""

    plan: Plan
    groups: dict[str, str]  # the consumer group of every query; a query keeps the one that it had
    numbers: dict[str, int]  # by which operators know sources
    resets: dict[str, dict[str, int]]  # by query, how often each operator has given up its state
    # The columns of operators' inputs, by query and operator (edited_columns.py).
    columns: dict[str, dict[str, list[str]]] = field(default_factory=dict)


TOPOLOGY = "topology.json"
REBUILD = "rebuild.json"


class Checkpoint:
    """A job's checkpoint directory."""

    def __init__(self, location: str, *, notes: str = TOPOLOGY) -> None:
        self.files = CheckpointFiles(location)
        self.identity = ""  # unique to this checkpoint; known once it has been claimed
        self.notes = notes
        self._directory: str | None = None

    @property
    def location(self) -> str:
        return self.files.location

    @property
    def local(self) -> Path | None:
        """The directory, if it is a local one."""
        return self.files.local

    @property
    def logs(self) -> QueryLogs:
        """Spark's checkpoints of the queries."""
        return QueryLogs(self.files, self.directory)

    def of_rebuild(self) -> Checkpoint:
        """The checkpoint of a rebuild of these views, over the same files."""
        new = Checkpoint(self.location, notes=REBUILD)
        new.files = self.files
        return new

    def rebuild(self) -> dict[str, Any] | None:
        """The notes of a rebuild of these views; None if no rebuild is in progress."""
        return self.of_rebuild().kept()

    def query(self, name: str) -> str:
        """The address of Spark's checkpoint directory of a query."""
        return f"{self.local or self.location}/{self.directory}/{name}"

    @property
    def directory(self) -> str:
        """The directory that holds the queries' checkpoints."""
        if self._directory is None:
            self._directory = str((self.kept() or {}).get("directory", "queries"))
        return self._directory

    def claim(self, flow: Topology, reset: Sequence[str] = ()) -> Continuation:
        """How the topology continues from the checkpoint; refused if the checkpoint is another topology's.
        The notes are not changed before ``bind``: a run that fails during planning must not get in the way
        of the next."""
        try:
            kept = self.kept()
            claim = (
                self._continued(flow, kept, reset)
                if kept is not None
                else Continuation(plan(flow), {}, {}, {})
            )
            self.identity = self._identity()
        except OSError as error:
            raise self._unusable(error) from None
        for query in claim.plan.queries:
            claim.groups.setdefault(query.name, claim.plan.group(query))
        numbers = claim.numbers
        for source in flow.sources:
            # Equal sources are told apart by how many equal ones come before them.
            same = [one for one in flow.sources if one.identity == source.identity]
            name = f"{source.identity} {same.index(source)}"
            flow.source_numbers[source.name] = numbers.setdefault(name, len(numbers))
        return claim

    def _continued(self, flow: Topology, kept: dict[str, Any], reset: Sequence[str]) -> Continuation:
        if kept["job"] != flow.name:
            raise TopologyError(
                f"the checkpoint {self.location} belongs to the job {kept['job']!r}, and this job is"
                f" {flow.name!r}: give another directory with --checkpoint",
                where=flow.at,
            )
        queries = {name: shape for name, shape in kept["queries"].items() if self.logs.begun(name)}
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
                f"the checkpoint {self.location} can't be continued: the topology has changed since the"
                " checkpoint was made\n"
                + "\n".join(f"  - {line}" for line in changed)
                + "\nChange the file back; "
                + "or discard the state of an operator, with --reset-operator NAME; " * of_operators
                + "or give a new directory with --checkpoint: the job then starts again where its sources say"
                " (start=)"
                + ", and builds its state from there" * any(shape["operators"] for shape in queries.values())
                + "; or rebuild its views and continue from there, with --rebuild" * bool(made.views)
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
        return Continuation(made, groups, dict(kept.get("sources", {})), resets, columns)

    def bind(self, claim: Continuation) -> None:
        """Record the queries, just before they start."""
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

    def in_use(self) -> bool:
        """True if one of the queries has ever been started."""
        kept = self.kept()
        return kept is not None and any(self.logs.query_id(name) is not None for name in kept["queries"])

    def _identity(self) -> str:
        name = f"{self.directory}/identity"
        known = self.files.read(name)
        if known is None:
            known = uuid.uuid4().hex
            self.files.write(name, known)
        return known

    def clean_up(self) -> None:
        """Remove the queries' previous directory, once another one has replaced it."""
        kept = self.kept()
        if kept is not None and "before" in kept:
            self.files.remove(kept.pop("before"))
            self.note(kept)

    def note(self, noted: dict[str, Any]) -> None:
        self.files.write(self.notes, json.dumps(noted, indent=2, sort_keys=True))
        self._directory = noted["directory"]

    def kept(self) -> dict[str, Any] | None:
        """The notes; None if there are none yet."""
        text = self.files.read(self.notes)
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
