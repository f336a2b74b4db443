"""The catalogue: all that a broker keeps besides records, in one SQLite file next to the logs.

It holds topics and their settings, settings of the broker that were changed while it ran, committed
offsets, the last agreed state of each group, what share groups have finished
(``broker.catalogue.share_states``), what groups missed (``broker.catalogue.losses``), which producer ids are
taken, and the decisions about transactions (``broker.transactions.decisions``).

How it works:

- Reads are served from memory and never wait.
- Every write returns a future of the running loop. It is done once the change is synced. Memory changes at
  the same moment, on the loop's thread, so no reader ever sees a change that a crash could take back.
- Changes are checked where they are written, one after the other (``broker.catalogue.database``). Of two
  that exclude each other (the same topic created twice at once), the first wins and the second is refused.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from millstream.broker.catalogue.copy_state import CopyState, load_state, save_facts
from millstream.broker.catalogue.database import CatalogueDatabase, damaged, fact, set_fact
from millstream.broker.catalogue.feed import CatalogueFeed
from millstream.broker.catalogue.lineage import Promotion
from millstream.broker.catalogue.losses import Losses
from millstream.broker.catalogue.quotas import Entity, Quotas
from millstream.broker.catalogue.scram import Credentials
from millstream.broker.catalogue.share_states import ShareStates
from millstream.broker.catalogue.topic import MAX_PARTITIONS, Topic
from millstream.broker.catalogue.topic_names import check_topic_name, metric_name, name_taken, no_topic
from millstream.broker.groups.committed_offset import CommittedOffset, OffsetToCommit
from millstream.broker.transactions.decisions import Commits, TransactionDecisions
from millstream.core.config import with_changes
from millstream.core.errors import ConfigError, DataDirectoryError, RequestRefused
from millstream.core.kafka_errors import INVALID_CONFIG, INVALID_PARTITIONS
from millstream.core.topic_config import TopicConfig, check_archiving

_PRODUCER_ID_BLOCK = 1000
_TOPICS = "SELECT name, id, partitions, overrides FROM topics ORDER BY name"
_ARCHIVED = "archive.deleted."  # prefix of facts: archives of deleted topics
_DELETED = "topic.deleted."  # prefix of facts: deleted topics whose logs may still be there
_MARKED = "archive.marked"  # fact: the URL of the archive that holds this cluster's mark


class Catalogue:
    """See the module's description. A ``path`` of None keeps everything in memory."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        defaults: TopicConfig | None = None,
        archive: bool = False,  # an archive is configured: topics may have remote.storage.enable
        database: CatalogueDatabase | None = None,  # to use instead of one opened at ``path``
    ) -> None:
        self._defaults = defaults if defaults is not None else TopicConfig()
        self._archive = archive
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._by_metric_name: dict[str, str] = {}
        self._offsets: dict[str, dict[str, dict[int, CommittedOffset]]] = {}  # group, topic, partition
        self._groups: dict[str, str] = {}
        self.deleted_topics: set[str] = set()  # those whose logs may still be there
        self.marked_archive = ""  # its URL
        self.deleted_archives: dict[str, int] = {}  # of deleted topics, with the time each is due for removal
        self.altering = asyncio.Lock()  # held while settings are read, changed and written back
        self._producer_ids = iter(range(0))
        self._producer_ids_wanted = asyncio.Lock()
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self.by_id: Mapping[uuid.UUID, Topic] = MappingProxyType(self._by_id)
        self.topics_version = 0  # incremented with every change of a topic
        # Settings that were changed while the broker ran: its own, and below them those of all brokers.
        self.broker_overrides: Mapping[str, str] = {}
        self.cluster_overrides: Mapping[str, str] = {}
        self.group_overrides: Mapping[str, Mapping[str, str]] = {}
        self.quotas: Quotas = {}
        self.scram: Credentials = {}
        self.cluster_id = ""
        self.promotions: list[Promotion] = []
        # Called with the groups whose committed offsets changed.
        self.on_commits: Callable[[Iterable[str]], None] | None = None

        self._database = database if database is not None else CatalogueDatabase(path)
        self.decisions = TransactionDecisions(self._database, self._remember_commits)
        self.losses = Losses(self._database)
        self.share_states = ShareStates(self._database)
        try:
            self._load()
        except BaseException:
            self._database.close()
            raise

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str] | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> asyncio.Future[Topic]:
        topic = self.planned_topic(name, partitions, overrides, topic_id)

        def write(db: sqlite3.Connection) -> Topic:
            clash = db.execute("SELECT name FROM topics WHERE metric_name = ?", (metric_name(name),))
            if (row := clash.fetchone()) is not None:
                raise name_taken(name, row[0])
            db.execute(
                "INSERT INTO topics VALUES (?, ?, ?, ?, ?)",
                (name, metric_name(name), topic.id.bytes, partitions, json.dumps(dict(topic.overrides))),
            )
            return topic

        return self._database.write(write, self._remember_topic)

    def planned_topic(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str] | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> Topic:
        """The topic that ``create_topic`` would make. Raises ``RequestRefused`` if it would not."""
        check_topic_name(name)
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise RequestRefused(
                INVALID_PARTITIONS, f"a topic has from 1 to {MAX_PARTITIONS} partitions, not {partitions}"
            )
        clash = self._by_metric_name.get(metric_name(name))
        if clash is not None:
            raise name_taken(name, clash)
        overrides = dict(overrides or {})
        return Topic(name, topic_id or uuid.uuid4(), partitions, overrides, self.topic_config(overrides))

    def topic_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """A topic's settings: ``overrides`` on top of the broker's defaults."""
        try:
            config = with_changes(self._defaults, overrides)
            check_archiving(config, archive=self._archive)
            return config
        except ConfigError as error:
            raise RequestRefused(INVALID_CONFIG, str(error)) from None

    def delete_topic(self, name: str, archived: str = "", due_ms: int = 0) -> asyncio.Future[Topic]:
        """Delete a topic, and every group's offsets in it. The same commit notes what is left to remove: its
        logs, until ``logs_removed``, and what it has in the archive, under ``archived``, at ``due_ms``."""

        def write(db: sqlite3.Connection) -> None:
            if db.execute("DELETE FROM topics WHERE name = ?", (name,)).rowcount == 0:
                raise no_topic(name)
            set_fact(db, _DELETED + name, "")
            if archived:
                set_fact(db, _ARCHIVED + archived, str(due_ms))

        def remember(_: None) -> Topic:
            self.deleted_topics.add(name)
            if archived:
                self.deleted_archives[archived] = due_ms
            topic = self._topics.pop(name)
            self.topics_version += 1
            del self._by_id[topic.id]
            del self._by_metric_name[metric_name(name)]
            for group in [g for g, topics in self._offsets.items() if name in topics]:
                self._forget_offsets(group, [(name, p) for p in self._offsets[group][name]])
            self.decisions.forget_topic(name)
            self.losses.forget_topic(name)
            self.share_states.forget_topic(topic.id.bytes)
            return topic

        return self._database.write(write, remember)

    def logs_removed(self, topics: Sequence[str]) -> asyncio.Future[None]:
        """Record that the logs of these deleted topics are gone."""

        def write(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM facts WHERE name = ?", [(_DELETED + name,) for name in topics])

        def remember(_: None) -> None:
            self.deleted_topics.difference_update(topics)

        return self._database.write(write, remember)

    def forget_deleted(self) -> None:
        """Record that the logs of all deleted topics are gone. Only at startup, before anything is served."""
        rows = [(_DELETED + name,) for name in self.deleted_topics]
        self._database.run_now("DELETE FROM facts WHERE name = ?", rows)
        self.deleted_topics.clear()

    def archive_marked(self, url: str) -> asyncio.Future[None]:
        """Record that the archive at ``url`` holds our mark: from now on one without it is not ours."""

        def write(db: sqlite3.Connection) -> None:
            set_fact(db, _MARKED, url)

        def remember(_: None) -> None:
            self.marked_archive = url

        return self._database.write(write, remember)

    def archive_removed(self, archived: str) -> asyncio.Future[None]:
        """Record that what a deleted topic had in the archive is gone."""

        def write(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM facts WHERE name = ?", (_ARCHIVED + archived,))

        def remember(_: None) -> None:
            self.deleted_archives.pop(archived, None)

        return self._database.write(write, remember)

    def add_partitions(self, name: str, total: int) -> asyncio.Future[Topic]:
        """Give a topic ``total`` partitions. The number can only grow."""
        if total > MAX_PARTITIONS:
            raise RequestRefused(
                INVALID_PARTITIONS, f"a topic has at most {MAX_PARTITIONS} partitions, not {total}"
            )

        def write(db: sqlite3.Connection) -> None:
            row = db.execute("SELECT partitions FROM topics WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise no_topic(name)
            if total <= row[0]:
                raise RequestRefused(
                    INVALID_PARTITIONS, f"topic {name} has {row[0]} partitions already; {total} is not more"
                )
            db.execute("UPDATE topics SET partitions = ? WHERE name = ?", (total, name))

        def remember(_: None) -> Topic:
            topic = self._topics[name]
            return self._remember_topic(Topic(name, topic.id, total, topic.overrides, topic.config))

        return self._database.write(write, remember)

    def take_back_partitions(self, name: str, total: int) -> asyncio.Future[Topic]:
        """Go back to ``total`` partitions, because the new ones could not be created."""

        def write(db: sqlite3.Connection) -> None:
            db.execute("UPDATE topics SET partitions = ? WHERE name = ?", (total, name))

        def remember(_: None) -> Topic:
            topic = self._topics[name]
            return self._remember_topic(Topic(name, topic.id, total, topic.overrides, topic.config))

        return self._database.write(write, remember)

    def set_topic_overrides(self, name: str, overrides: Mapping[str, str]) -> asyncio.Future[Topic]:
        """Replace all of a topic's own settings."""
        overrides = dict(overrides)
        config = self.topic_config(overrides)

        def write(db: sqlite3.Connection) -> None:
            changed = db.execute(
                "UPDATE topics SET overrides = ? WHERE name = ?", (json.dumps(overrides), name)
            )
            if changed.rowcount == 0:
                raise no_topic(name)

        def remember(_: None) -> Topic:
            topic = self._topics[name]
            return self._remember_topic(Topic(name, topic.id, topic.partitions, overrides, config))

        return self._database.write(write, remember)

    def _remember_topic(self, topic: Topic) -> Topic:
        self._topics[topic.name] = self._by_id[topic.id] = topic
        self.topics_version += 1
        self._by_metric_name[metric_name(topic.name)] = topic.name
        return topic

    # The broker

    def set_broker_overrides(
        self, overrides: Mapping[str, str], *, everywhere: bool = False
    ) -> asyncio.Future[None]:
        """Replace all settings that were changed while the broker ran: its own, or those of all brokers."""
        overrides = dict(overrides)
        fact = "cluster.overrides" if everywhere else "broker.overrides"

        def remember(_: None) -> None:
            if everywhere:
                self.cluster_overrides = overrides
            else:
                self.broker_overrides = overrides

        return self._database.write(lambda db: set_fact(db, fact, json.dumps(overrides)), remember)

    def set_quotas(self, entity: Entity, quotas: Mapping[str, float]) -> asyncio.Future[None]:
        """Replace all quotas of an entity. An empty mapping removes them."""
        changed = {each: own for each, own in self.quotas.items() if each != entity}
        if quotas:
            changed[entity] = dict(quotas)
        text = json.dumps([[sorted(each), own] for each, own in changed.items()])

        def remember(_: None) -> None:
            self.quotas = changed

        return self._database.write(lambda db: set_fact(db, "client.quotas", text), remember)

    def set_scram(self, credentials: Credentials) -> asyncio.Future[None]:
        """Replace all SCRAM credentials, by user and mechanism."""

        def remember(_: None) -> None:
            self.scram = credentials

        text = json.dumps(credentials)
        return self._database.write(lambda db: set_fact(db, "scram.credentials", text), remember)

    def allocate_producer_ids(self, count: int) -> asyncio.Future[range]:
        """Producer ids that were never given out before and never will be again, even after a crash."""

        def write(db: sqlite3.Connection) -> range:
            first = int(fact(db, "producer.ids.next") or 0)
            set_fact(db, "producer.ids.next", str(first + count))
            return range(first, first + count)

        return self._database.write(write, lambda block: block)

    async def new_producer_id(self) -> int:
        """One new producer id. The catalogue is written once per thousand of them."""
        async with self._producer_ids_wanted:
            producer_id = next(self._producer_ids, None)
            if producer_id is None:
                self._producer_ids = iter(await self.allocate_producer_ids(_PRODUCER_ID_BLOCK))
                producer_id = next(self._producer_ids)
            return producer_id

    # Groups and their offsets

    def commit_offsets(self, group: str, commits: Iterable[OffsetToCommit]) -> asyncio.Future[None]:
        """Commit offsets of a group. Those in topics that have been deleted by then are left out."""
        rows = [OffsetToCommit(*commit) for commit in commits]
        topics = {row.topic for row in rows}
        partitions = [(row.topic, row.partition) for row in rows]

        def write(db: sqlite3.Connection) -> None:
            self.decisions.drop_pending(db, group, partitions)
            known = {t for t in topics if db.execute("SELECT 1 FROM topics WHERE name = ?", (t,)).fetchone()}
            db.executemany(
                "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(group, *row) for row in rows if row.topic in known],
            )

        def remember(_: None) -> None:
            self.decisions.forget_pending(group, partitions)
            self._remember_commits({group: rows})

        return self._database.write(write, remember)

    def _remember_commits(self, commits: Commits) -> None:
        for group, rows in commits.items():
            for row in rows:
                if row.topic in self._topics:
                    of_topic = self._offsets.setdefault(group, {}).setdefault(row.topic, {})
                    of_topic[row.partition] = CommittedOffset(*row[2:])
        if self.on_commits is not None:
            self.on_commits(commits)

    def delete_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> asyncio.Future[None]:
        """Delete a group's offsets, all or the given ones, including those pending in a transaction."""
        chosen = None if partitions is None else list(partitions)

        def write(db: sqlite3.Connection) -> None:
            self.decisions.drop_pending(db, group, chosen)
            if chosen is None:
                db.execute('DELETE FROM offsets WHERE "group" = ?', (group,))
            else:
                db.executemany(
                    'DELETE FROM offsets WHERE "group" = ? AND topic = ? AND partition = ?',
                    [(group, topic, partition) for topic, partition in chosen],
                )

        def remember(_: None) -> None:
            self.decisions.forget_pending(group, chosen)
            if chosen is None:
                self._offsets.pop(group, None)
            else:
                self._forget_offsets(group, chosen)

        return self._database.write(write, remember)

    def expire_offsets(self, group: str, expired: Iterable[tuple[str, int, int]]) -> asyncio.Future[None]:
        """Delete offsets (topic, partition, commit time) unless they have been committed again since."""
        chosen = list(expired)

        def write(db: sqlite3.Connection) -> list[tuple[str, int]]:
            return [
                (topic, partition)
                for topic, partition, commit_ms in chosen
                if db.execute(
                    'DELETE FROM offsets WHERE "group" = ? AND topic = ? AND partition = ? AND commit_ms = ?',
                    (group, topic, partition, commit_ms),
                ).rowcount
            ]

        return self._database.write(write, lambda gone: self._forget_offsets(group, gone))

    def _forget_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        kept = self._offsets.get(group, {})
        for topic, partition in partitions:
            of_topic = kept.get(topic, {})
            of_topic.pop(partition, None)
            if not of_topic:
                kept.pop(topic, None)
        if not kept:
            self._offsets.pop(group, None)

    def offsets_of(self, group: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """A group's committed offsets, by topic and then partition. Empty if it never committed."""
        return self._offsets.get(group, _NO_OFFSETS)

    @property
    def offsets(self) -> Mapping[str, Mapping[str, Mapping[int, CommittedOffset]]]:
        """All committed offsets, by group, topic and partition."""
        return self._offsets

    def groups_with_offsets(self) -> list[str]:
        return list(self._offsets)

    @property
    def group_states(self) -> Mapping[str, str]:
        """The last agreed state of each group, in the coordinator's own format, for a restart."""
        return self._groups

    def set_group_state(self, group: str, state: str) -> asyncio.Future[None]:
        def write(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO groups VALUES (?, ?)", (group, state))

        def remember(_: None) -> None:
            self._groups[group] = state

        return self._database.write(write, remember)

    def set_group_overrides(self, group: str, overrides: Mapping[str, str]) -> asyncio.Future[None]:
        """Replace all of a group's own settings. An empty mapping removes them."""
        changed = {name: own for name, own in self.group_overrides.items() if name != group}
        if overrides:
            changed[group] = dict(overrides)

        def remember(_: None) -> None:
            self.group_overrides = changed

        return self._database.write(lambda db: set_fact(db, "group.overrides", json.dumps(changed)), remember)

    def delete_group(self, group: str) -> asyncio.Future[None]:
        """Delete a group and all of its offsets, including pending ones."""

        def write(db: sqlite3.Connection) -> None:
            self.decisions.drop_pending(db, group, None)
            db.execute('DELETE FROM offsets WHERE "group" = ?', (group,))
            db.execute("DELETE FROM groups WHERE name = ?", (group,))
            self.losses.forget(group, db)
            self.share_states.forget(group, db)

        def remember(_: None) -> None:
            self.decisions.forget_pending(group, None)
            self._offsets.pop(group, None)
            self._groups.pop(group, None)
            self.losses.forget(group)
            self.share_states.forget(group)

        return self._database.write(write, remember)

    def forget_group(self, group: str) -> asyncio.Future[None]:
        """Delete a group's state and its losses, if it has no offsets left by then."""

        def write(db: sqlite3.Connection) -> bool:
            left = db.execute(
                'SELECT EXISTS (SELECT 1 FROM offsets WHERE "group" = ?1) '
                'OR EXISTS (SELECT 1 FROM pending_offsets WHERE "group" = ?1)',
                (group,),
            ).fetchone()[0]
            if not left:
                db.execute("DELETE FROM groups WHERE name = ?", (group,))
                self.losses.forget(group, db)
            return not left

        def remember(forgotten: bool) -> None:
            if forgotten:
                self._groups.pop(group, None)
                self.losses.forget(group)

        return self._database.write(write, remember)

    # For standbys

    @property
    def lineage(self) -> list[Promotion]:
        """The brokers that have led these logs, up to this one."""
        return [Promotion(self.cluster_id, 0), *self.promotions]

    @property
    def changes(self) -> int:
        """The number of rows in the file that were changed since it was opened."""
        return self._database.changes

    @property
    def schema(self) -> str:
        """Identifies the tables. A broker with other tables can't apply the same changes."""
        return self._database.schema

    @property
    def feed(self) -> CatalogueFeed | None:
        return self._database.feed

    def follow(self, added: Callable[[], None]) -> CatalogueFeed:
        """Keep all commits from now on, for standbys that apply the same changes."""
        return self._database.follow(added)

    def unfollow(self) -> None:
        self._database.feed = None

    def pinned(self) -> asyncio.Future[tuple[int, sqlite3.Connection]]:
        return self._database.pinned()

    def copy_state(self) -> CopyState:
        """This directory's part beside another broker. Only before anything is written."""
        return self._database.read_now(load_state)

    def change_now(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Change the file before anything else is written, and read its facts again."""
        self._database.change_now(write)
        self._read_facts(self._database.facts)

    def save_as(self, path: Path) -> None:
        """Save a copy of the file as it is."""
        self._database.save_as(path)

    def write_copy_facts(self, **facts: Any) -> asyncio.Future[None]:
        """Record this directory's part beside another broker (``broker.catalogue.copy_state``)."""
        return self._database.write_copied(lambda db: save_facts(db, **facts), lambda _: None)

    def refuse(self, reason: RequestRefused | None) -> None:
        """Refuse changes by clients, because another broker leads. None allows them again."""
        self._database.refuse(reason)

    def foresee(self, topics: Iterable[tuple[str, bytes, int, Mapping[str, str]]]) -> asyncio.Future[None]:
        """Create topics (name, id, partitions, settings) that the leader has created or grown, before its own
        change arrives, so that there are logs for their records."""
        rows = list(topics)

        def write(db: sqlite3.Connection) -> None:
            for name, topic_id, partitions, overrides in rows:
                db.execute("DELETE FROM topics WHERE name = ? AND id != ?", (name, topic_id))
                db.execute(
                    "INSERT INTO topics VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT (name) DO UPDATE SET partitions = excluded.partitions",
                    (name, metric_name(name), topic_id, partitions, json.dumps(dict(overrides))),
                )

        return self.copy(write)

    def copy(self, write: Callable[[sqlite3.Connection], None]) -> asyncio.Future[None]:
        """Apply changes that the leader made, or that concern only this copy. Then read the topics again, but
        no groups and transactions: those are read when this broker is promoted."""

        def write_and_read(db: sqlite3.Connection) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
            write(db)
            topics = db.execute(_TOPICS).fetchall()
            for name, _, _, text in topics:
                try:
                    self.topic_config(json.loads(text))
                except RequestRefused as error:
                    raise RequestRefused(
                        error.code, f"topic {name}: {error}; start the standby with its leader's settings"
                    ) from None
            return dict(db.execute("SELECT name, value FROM facts")), topics

        def remember(read: tuple[dict[str, str], list[tuple[Any, ...]]]) -> None:
            facts, topics = read
            self._offsets.clear()
            self._groups.clear()
            self._read_facts(facts)
            self._read_topics(topics)

        return self._database.write_copied(write_and_read, remember)

    def close(self) -> None:
        """Write what is waiting, settle every future, close the file. A second call does nothing."""
        self._database.close()

    def _load(self) -> None:
        database = self._database
        try:
            self._read_facts(database.facts)
            self._read_topics(database.rows(_TOPICS))
        except (ValueError, AttributeError, TypeError) as error:
            raise damaged(database.where, str(error)) from None
        # The records of a memory topic died with the last process. A committed offset in such a topic
        # would make its group skip that many of the new records.
        lost = {t.name for t in self._topics.values() if t.config.millstream_storage == "memory"}
        for table in ("offsets", "pending_offsets"):
            database.run_now(f"DELETE FROM {table} WHERE topic = ?", [(name,) for name in lost])  # noqa: S608
        lost_ids = [(self._topics[name].id.bytes,) for name in lost]
        database.run_now("DELETE FROM share_partitions WHERE topic_id = ?", lost_ids)
        for group, topic, partition, *fields in database.rows("SELECT * FROM offsets"):
            self._offsets.setdefault(group, {}).setdefault(topic, {})[partition] = CommittedOffset(*fields)
        self._groups.update(database.rows("SELECT name, state FROM groups"))
        self.decisions.load()
        self.losses.load()
        self.share_states.load()

    def _read_facts(self, facts: Mapping[str, str]) -> None:
        self.cluster_id = facts.get("cluster.id", "")
        self.broker_overrides = json.loads(facts.get("broker.overrides", "{}"))
        self.cluster_overrides = json.loads(facts.get("cluster.overrides", "{}"))
        self.group_overrides = json.loads(facts.get("group.overrides", "{}"))
        self.deleted_topics = {name.removeprefix(_DELETED) for name in facts if name.startswith(_DELETED)}
        self.marked_archive = facts.get(_MARKED, "")
        self.deleted_archives = {
            name.removeprefix(_ARCHIVED): int(value)
            for name, value in facts.items()
            if name.startswith(_ARCHIVED)
        }
        self.scram = json.loads(facts.get("scram.credentials", "{}"))
        self.quotas = {
            frozenset((kind, name) for kind, name in entity): quotas
            for entity, quotas in json.loads(facts.get("client.quotas", "[]"))
        }
        self.promotions = [Promotion(*each) for each in json.loads(facts.get("promotions", "[]"))]

    def _read_topics(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._topics.clear()
        self._by_id.clear()
        self._by_metric_name.clear()
        for name, topic_id, partitions, text in rows:
            overrides = json.loads(text)
            try:
                config = self.topic_config(overrides)
            except RequestRefused as error:
                raise DataDirectoryError(
                    f"{self._database.where}: topic {name}: {error}; start the broker with the settings and "
                    "the version that it was created with"
                ) from None
            self._remember_topic(Topic(name, uuid.UUID(bytes=topic_id), partitions, overrides, config))


_NO_OFFSETS: Mapping[str, Mapping[int, CommittedOffset]] = MappingProxyType({})
