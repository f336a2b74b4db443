"""Rebuild the catalogue of a directory in which it is damaged or missing.

There are two sources: the copy that the broker keeps next to the catalogue (``broker.catalogue.backup``),
and the directories of the logs. The directories decide which topics exist:

- If the copy does not know a partition's directory, its topic was created, or created again, after the
  copy was made. The directory's ``partition.metadata`` names the topic's id. The topic gets the default
  settings, except where its files show others.
- If a topic in the copy has no directory, it was deleted since, unless the checkpoints name it. In that
  case its records are missing, and the broker says so when it starts (``log.recovery.shortfall``).
- Transactions are forgotten. Decisions made after the copy are unknown, and a wrong decision is worse
  than none. The broker aborts the transactions that are open in the logs and unknown to the catalogue.
- Producer ids continue far beyond all that may have been given out since.

The old file is kept under another name. If anything goes wrong before the end, nothing is changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from millstream.broker.catalogue.backup import BACKUP_NAME
from millstream.broker.catalogue.database import (
    FILE_NAME,
    PRODUCER_IDS_SKIPPED,
    create_or_check,
    fact,
    set_fact,
)
from millstream.broker.catalogue.stopped_broker import SIDE_FILES, opened_copy, read_catalogue
from millstream.broker.catalogue.topic_names import metric_name
from millstream.core.errors import CatalogueDamaged, DataDirectoryError
from millstream.log.archive.journal import JOURNAL
from millstream.log.compaction.compaction import CHECKPOINT as COMPACTION_CHECKPOINT
from millstream.log.directory import META_PROPERTIES, partition_of, read_properties, take_lock
from millstream.log.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from millstream.log.storage.files import DIRECTORY, Files, OsFiles
from millstream.log.storage.partition_metadata import read_topic_id

_FORGOTTEN = ("pending_offsets", "owed_markers", "transactions")


@dataclass
class Rebuilt:
    """What a rebuild restored, and what it could not."""

    topics: int = 0
    partitions: int = 0
    backup_time: datetime | None = None  # of the copy that was used
    kept_as: str = ""  # the name under which the old file was kept
    unrecovered: list[str] = field(default_factory=list)


class _Found(NamedTuple):
    """A topic, as its directories show it."""

    id: uuid.UUID | None
    partitions: int
    settings: dict[str, str]


def rebuild_catalogue(directory: Path) -> Rebuilt:
    """See the module's description. Raises DataDirectoryError, also if there is nothing to rebuild."""
    files = OsFiles()
    try:
        properties = read_properties(files, str(directory))
    except FileNotFoundError:
        raise DataDirectoryError(
            f"{directory} is not the data directory of a broker: it has no {META_PROPERTIES}"
        ) from None
    unlock = take_lock(files, str(directory))
    try:
        _check_need(directory)
        return _rebuild(directory, files, properties["cluster.id"])
    finally:
        unlock()


def _check_need(directory: Path) -> None:
    path = directory / FILE_NAME
    problem = read_catalogue(directory).problem
    if not problem:
        raise DataDirectoryError(f"the catalogue {path} is in order; there is nothing to rebuild")
    if path.exists() and path.stat().st_size:
        try:
            with opened_copy(path):
                pass
        except CatalogueDamaged:
            return  # any other error means that it is intact, but not of this version


def _rebuild(directory: Path, files: Files, cluster_id: str) -> Rebuilt:
    result = Rebuilt()
    new = directory / (FILE_NAME + ".new")
    for suffix in ("", *SIDE_FILES):
        Path(f"{new}{suffix}").unlink(missing_ok=True)
    backup = directory / BACKUP_NAME
    if _is_usable(backup, cluster_id, result):
        shutil.copyfile(backup, new)
        result.backup_time = datetime.fromtimestamp(backup.stat().st_mtime, UTC)
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        create_or_check(db, str(new))
        db.execute("BEGIN IMMEDIATE")
        set_fact(db, "cluster.id", cluster_id)
        next_id = int(fact(db, "producer.ids.next") or 0)
        set_fact(db, "producer.ids.next", str(next_id + PRODUCER_IDS_SKIPPED))
        _reconcile(db, directory, files, result)
        _tell(db, result)
        for table in _FORGOTTEN:
            db.execute(f"DELETE FROM {table}")  # noqa: S608
        result.topics, result.partitions = db.execute(
            "SELECT count(*), coalesce(sum(partitions), 0) FROM topics"
        ).fetchone()
        db.execute("COMMIT")
    with new.open("rb+") as file:
        os.fsync(file.fileno())
    _put_in_place(directory, new, result)
    files.sync_directory(str(directory))
    return result


def _is_usable(backup: Path, cluster_id: str, result: Rebuilt) -> bool:
    if not backup.exists():
        return False
    try:
        with opened_copy(backup) as db:
            if fact(db, "cluster.id") == cluster_id:
                return True
            result.unrecovered.append(f"{backup} belongs to another broker and was not used")
    except DataDirectoryError as error:
        result.unrecovered.append(f"the copy of the catalogue was not used: {error}")
    return False


def _reconcile(db: sqlite3.Connection, directory: Path, files: Files, result: Rebuilt) -> None:
    """Make the topics match the directories."""
    known = {
        name: (uuid.UUID(bytes=topic_id), partitions, json.loads(overrides))
        for name, topic_id, partitions, overrides in db.execute(
            "SELECT name, id, partitions, overrides FROM topics"
        )
    }
    preferred = {name: topic_id for name, (topic_id, _, _) in known.items()}
    found = dict(_topics_on_disk(files, str(directory), preferred))
    named = {
        topic
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS)
        for topic, _ in read_offsets(files, f"{directory}/{name}")
    }
    deleted = [
        name
        for name, (_, _, overrides) in known.items()
        if name not in found and name not in named and overrides.get("millstream.storage") != "memory"
    ]
    for name in deleted:
        db.execute("DELETE FROM topics WHERE name = ?", (name,))
    if deleted:
        result.unrecovered.append(f"left out, because they no longer have a directory: {_names(deleted)}")
    without_id, by_files = [], []
    for name, topic in found.items():
        if name in known and topic.id in (None, known[name][0]):
            more = max(topic.partitions, known[name][1])
            db.execute("UPDATE topics SET partitions = ? WHERE name = ?", (more, name))
            continue
        if topic.id is None:
            without_id.append(name)
        db.execute("DELETE FROM topics WHERE name = ?", (name,))
        db.execute(
            "INSERT INTO topics VALUES (?, ?, ?, ?, ?)",
            (
                name,
                metric_name(name),
                (topic.id or uuid.uuid4()).bytes,
                topic.partitions,
                json.dumps(topic.settings),
            ),
        )
        shown = ", ".join(f"{key}={value}" for key, value in topic.settings.items())
        by_files.append(f"{name} ({shown})" if shown else name)
    if by_files:
        result.unrecovered.append(
            f"the settings of these topics; they have the defaults, but for what their files show: "
            f"{_names(by_files)}"
        )
    if without_id:
        result.unrecovered.append(
            f"the ids of these topics; they have new ones, and what they have in an archive is not found: "
            f"{_names(without_id)}"
        )


def _topics_on_disk(
    files: Files, directory: str, preferred: dict[str, uuid.UUID]
) -> Iterator[tuple[str, _Found]]:
    by_topic: dict[str, dict[int, str]] = {}
    for name, size in files.listing(directory).items():
        if size == DIRECTORY and (key := partition_of(name)) is not None:
            by_topic.setdefault(key[0], {})[key[1]] = f"{directory}/{name}"
    for name, paths in sorted(by_topic.items()):
        ids = Counter(found for path in paths.values() if (found := read_topic_id(files, path)) is not None)
        chosen = preferred.get(name)
        if chosen not in ids:
            chosen = ids.most_common(1)[0][0] if ids else None
        names = {inside for path in paths.values() for inside in files.listing(path)}
        settings = {}
        if COMPACTION_CHECKPOINT in names:
            settings["cleanup.policy"] = "compact"
        if JOURNAL in names:
            settings["remote.storage.enable"] = "true"
        yield name, _Found(chosen, max(paths) + 1, settings)


def _tell(db: sqlite3.Connection, result: Rebuilt) -> None:
    if result.backup_time is None:
        result.unrecovered.append(
            "there is no copy to use: the committed offsets of all groups, the groups themselves, users "
            "and their passwords (SCRAM), quotas, the settings of topics, groups and the broker that were "
            "changed while it ran, and topics with millstream.storage=memory"
        )
    else:
        result.unrecovered.append(
            "what changed after the copy was made: committed offsets and what share groups have finished "
            "(groups read again what they had read since), users, quotas, and settings of topics, groups and "
            "the broker"
        )
    transactions = db.execute("SELECT count(*) FROM transactions").fetchone()[0]
    count = f" ({transactions} in the copy)" if transactions else ""
    result.unrecovered.append(
        f"transactional ids{count} and the decisions about their transactions: those that are open in the "
        "logs are aborted at the next start, also if they were about to be committed"
    )


def _names(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _put_in_place(directory: Path, new: Path, result: Rebuilt) -> None:
    path = directory / FILE_NAME
    if path.exists():
        kept = directory / f"catalogue-damaged-{uuid.uuid4().hex[:8]}.db"
        for suffix in ("", *SIDE_FILES):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}{suffix}", f"{kept}{suffix}")
        result.kept_as = kept.name
    for suffix in SIDE_FILES:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    new.replace(path)
