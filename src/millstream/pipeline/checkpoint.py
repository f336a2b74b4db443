"""A job's own files in its checkpoint directory, and what of Spark's it has to know.

    topology.json        whose checkpoint it is and which, what its queries were when it was made, and their
                         groups
    queries/NAME/        Spark's checkpoint of one query
      metadata           its id
      offsets/N          where batch N ends in each source, written before the batch is begun
    views.db             the views, unless they were put elsewhere

A local directory is used directly; any other address (``hdfs://``, ``s3a://``) through Spark's file systems.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError, TopologyError
from millstream.pipeline.offsets import Offsets, from_json
from millstream.pipeline.plan import Plan, shapes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHAPES = "topology.json"


class Checkpoint:
    """Where a job remembers how far it is."""

    def __init__(self, location: str) -> None:
        self.location = location.removeprefix("file://").rstrip("/")
        self.local = None if "://" in self.location else Path(self.location).absolute()
        self.identity = ""  # no other checkpoint has it; known when it has been claimed
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

    def claim(self, plan: Plan) -> dict[str, str]:
        """Note the topology's shape, or refuse if the checkpoint is of another one. Returns the consumer
        group of every query: a query keeps the group it had, whatever others came to stand beside it."""
        try:
            kept = self._kept()
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
                        " starts again where its sources say (start=), and builds its state from there",
                        where=plan.flow.at,
                    )
                groups |= {name: group for name, group in kept["groups"].items() if name in groups}
            self.identity = str((kept or {}).get("id") or uuid.uuid4().hex)
            noted = {
                "job": plan.flow.name,
                "id": self.identity,
                "queries": json.loads(shapes(plan)),
                "groups": groups,
            }
            self.write(_SHAPES, json.dumps(noted, indent=2, sort_keys=True))
            return groups
        except OSError as error:
            raise MillstreamError(f"can't use the checkpoint {self.location}: {error.strerror}") from None

    def _kept(self) -> dict[str, Any] | None:
        text = self.read(_SHAPES)
        if text is None:
            return None
        try:
            kept: dict[str, Any] = json.loads(text)
            if kept.keys() >= {"job", "queries", "groups"}:
                return kept
        except ValueError:
            pass
        raise MillstreamError(
            f"{self.location}/{_SHAPES} can't be read: the checkpoint is damaged, or not one of millstream's."
            " Give another directory with --checkpoint"
        )

    # ---- Spark's ------------------------------------------------------------------------------------

    def query_id(self, query: str) -> str | None:
        """The id that Spark gave a query with its first start; None if that is still to come."""
        text = self.read(f"queries/{query}/metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged(f"queries/{query}/metadata") from None

    def offsets(self, query: str, batch: int) -> Offsets:
        """Where a batch ends. Of a topic that is read twice, what has been read both times."""
        name = f"queries/{query}/offsets/{batch}"
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
        name = f"queries/{query}/offsets/{batch}"
        try:
            return 1000 * int(json.loads((self.read(name) or "").splitlines()[1])["batchTimestampMs"])
        except (ValueError, KeyError, IndexError, TypeError):
            raise self._damaged(name) from None

    def _damaged(self, name: str) -> MillstreamError:
        return MillstreamError(f"{self.location}/{name} can't be read: the checkpoint is damaged")


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
        found += _operators(name, before, after)
    return found


def _operators(query: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What changed about the stateful operators of a query. Spark knows them by their place alone, and what
    they are called does not matter."""
    old, new = before.get("operators") or [], after.get("operators") or []
    if not old and not new:
        return []
    if len(old) != len(new) or [_made(one) for one in old] != [_made(one) for one in new]:
        moved = _moved(old, new)
        if moved:
            return [f"query {query!r}: {line}" for line in moved]
    found = []
    for key, word in (("buckets", "divided its keys into {} buckets"), ("state", "kept its state in {}")):
        if before.get(key) != after.get(key) and before.get(key) is not None and old:
            found.append(f"query {query!r} {word.format(before[key])}; now {after.get(key)}")
    for one, other in zip(old, new, strict=False):
        found += _changed(one, other)
    return found


def _made(operator: dict[str, Any]) -> dict[str, Any]:
    """An operator without its names."""
    keys = [entry["by"] for entry in operator["inputs"]]
    return {**operator, "operator": None, "inputs": keys}


def _moved(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Operators that came, went or changed places."""
    was, now = [one["operator"] for one in old], [one["operator"] for one in new]
    gone = [f"the stateful operator {name!r} is gone" for name in was if name not in now]
    came = [f"the stateful operator {name!r} is new" for name in now if name not in was]
    if len(was) != len(now):
        return gone + came or [f"it had {len(was)} stateful operators; now {len(now)}"]
    if not gone and was != now:
        return [
            f"its stateful operators stood in the order {', '.join(was)}; now {', '.join(now)}: the order is"
            " that of the sinks in the file"
        ]
    return []


def _changed(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    name = f"the stateful operator {one['operator']!r}"
    found = []
    keys, others = ([entry["by"] for entry in operator["inputs"]] for operator in (one, other))
    if keys != others:
        found.append(f"{name} had the keys {_text(keys)}; now {_text(others)}")
    inputs, turned = ([entry["from"] for entry in operator["inputs"]] for operator in (one, other))
    if inputs != turned and sorted(inputs) == sorted(turned):
        found.append(f"{name} had its inputs in the order {', '.join(inputs)}; now {', '.join(turned)}")
    parts = dict.fromkeys([*one, *other])
    return found + [
        f"{name} had {part.removesuffix('_us').replace('_', ' ')} {_text(one.get(part))};"
        f" now {_text(other.get(part))}"
        for part in parts
        if part not in ("operator", "inputs") and one.get(part) != other.get(part)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
