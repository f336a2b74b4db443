"""Keep transactions in the catalogue: states of transactional ids, pending offsets and owed markers.

``end`` is the commit point. In one write it records the decision, turns the pending offsets into
committed ones (or drops them), and adds an owed marker for every partition that has records of the
transaction. Before this write is durable, nothing is decided. After it, everything else follows without
asking anyone. The row of an owed marker is deleted once the marker is synced in its partition's log. A
row that outlives its marker does no harm: it names the first offset of the transaction that it ends, and
that transaction is no longer open in the log.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millstream.broker.catalogue.database import CatalogueDatabase
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.transactions.transaction import ProducerIdentity, TransactionalIdState, TxnState


class OwedMarker(NamedTuple):
    """A marker that must still be written to a partition's log, and the transaction there that it ends."""

    topic_id: bytes
    partition: int
    producer_id: int
    first_offset: int
    epoch: int
    is_commit: bool
    transaction: str


class AddedToTransaction(NamedTuple):
    """What a producer has added to its transaction before writing to it."""

    partitions: frozenset[tuple[bytes, int]] = frozenset()  # by topic id and index
    groups: frozenset[str] = frozenset()

    def to_text(self) -> str:
        partitions = sorted((topic_id.hex(), index) for topic_id, index in self.partitions)
        return json.dumps([partitions, sorted(self.groups)])


def _added(text: str) -> AddedToTransaction:
    partitions, groups = json.loads(text)
    return AddedToTransaction(
        frozenset((bytes.fromhex(topic), index) for topic, index in partitions), frozenset(groups)
    )


NOTHING_ADDED = AddedToTransaction()

Commits = Mapping[str, Sequence[OffsetToCommit]]  # by group


class TransactionDecisions:
    """See the module's description. Used through ``Catalogue.decisions``."""

    def __init__(self, database: CatalogueDatabase, commit_offsets: Callable[[Commits], None]) -> None:
        self._database = database
        self._commit_offsets = commit_offsets  # updates memory, once the offsets are durable
        # By group, then topic and partition: the transactions that have an offset pending there.
        self._pending: dict[str, dict[tuple[str, int], set[str]]] = {}
        self._groups_of: dict[str, set[str]] = {}  # the groups in which a transaction has offsets pending

    def load(self) -> None:
        for name, group, topic, partition in self._database.rows(
            'SELECT "transaction", "group", topic, partition FROM pending_offsets'
        ):
            self._note(name, group, topic, partition)

    def states(self) -> Iterator[tuple[TransactionalIdState, AddedToTransaction]]:
        """The states of the transactional ids when the broker stopped. Only before the first write."""
        for row in self._database.rows("SELECT * FROM transactions ORDER BY name"):
            (name, producer_id, epoch, timeout_ms, updated_ms, state, start_ms, previous_id, previous_epoch,
             kept_id, kept_epoch, added) = row  # fmt: skip
            yield (
                TransactionalIdState(
                    name,
                    ProducerIdentity(producer_id, epoch),
                    timeout_ms,
                    updated_ms,
                    TxnState(state),
                    start_ms,
                    ProducerIdentity(previous_id, previous_epoch),
                    ProducerIdentity(kept_id, kept_epoch),
                ),
                _added(added),
            )

    def owed_markers(self) -> list[OwedMarker]:
        """The markers that were owed when the broker stopped. Only before the first write."""
        return [
            OwedMarker(topic_id, partition, producer_id, first_offset, epoch, bool(is_commit), name)
            for topic_id, partition, producer_id, first_offset, epoch, is_commit, name in self._database.rows(
                "SELECT * FROM owed_markers ORDER BY topic_id, partition, first_offset"
            )
        ]

    def forget_owed_now(self, owed: Iterable[OwedMarker]) -> None:
        """The same as ``forget_owed``, before anything else is written."""
        self._database.run_now(_FORGET_OWED, [marker[:4] for marker in owed])

    # Changes

    def save(self, transaction: TransactionalIdState, added: AddedToTransaction) -> asyncio.Future[None]:
        """Save the state of a transactional id."""
        return self._database.write(lambda db: _put(db, transaction, added), lambda _: None)

    def add_offsets(
        self,
        transaction: TransactionalIdState,
        added: AddedToTransaction,
        group: str,
        commits: Sequence[OffsetToCommit],
    ) -> asyncio.Future[None]:
        """Add offsets that are committed if the transaction is. Those in deleted topics are left out."""

        def write(db: sqlite3.Connection) -> list[OffsetToCommit]:
            _put(db, transaction, added)
            known = {
                topic
                for topic in {commit.topic for commit in commits}
                if db.execute("SELECT 1 FROM topics WHERE name = ?", (topic,)).fetchone()
            }
            kept = [commit for commit in commits if commit.topic in known]
            db.executemany(
                "INSERT OR REPLACE INTO pending_offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(transaction.name, group, *commit) for commit in kept],
            )
            return kept

        def remember(kept: list[OffsetToCommit]) -> None:
            for commit in kept:
                self._note(transaction.name, group, commit.topic, commit.partition)

        return self._database.write(write, remember)

    def end(
        self,
        transaction: TransactionalIdState,
        *,
        commit: bool,
        owed: Sequence[OwedMarker],
        decided: Callable[[], None],
    ) -> asyncio.Future[None]:
        """The commit point, also of an abort.

        As soon as it is durable, the offsets change in memory and ``decided`` is called.
        """
        name = transaction.name

        def write(db: sqlite3.Connection) -> dict[str, list[OffsetToCommit]]:
            _put(db, transaction, NOTHING_ADDED)
            committed: dict[str, list[OffsetToCommit]] = {}
            if commit:
                rows = db.execute(
                    'SELECT "group", topic, partition, "offset", leader_epoch, metadata, commit_ms, '
                    'expire_ms FROM pending_offsets WHERE "transaction" = ?',
                    (name,),
                ).fetchall()
                db.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
                for group, *fields in rows:
                    committed.setdefault(group, []).append(OffsetToCommit(*fields))
            db.execute('DELETE FROM pending_offsets WHERE "transaction" = ?', (name,))
            db.executemany("INSERT OR REPLACE INTO owed_markers VALUES (?, ?, ?, ?, ?, ?, ?)", owed)
            return committed

        def remember(committed: dict[str, list[OffsetToCommit]]) -> None:
            self._forget_transaction(name)
            self._commit_offsets(committed)
            decided()

        return self._database.write(write, remember)

    def forget(self, names: Sequence[str]) -> asyncio.Future[None]:
        """Delete transactional ids that have not been used for long."""
        return self._database.write(
            lambda db: db.executemany("DELETE FROM transactions WHERE name = ?", [(name,) for name in names]),
            lambda _: None,
        )

    def forget_owed(self, owed: Iterable[OwedMarker]) -> asyncio.Future[None]:
        """Delete owed markers that are synced, or whose partition is gone."""
        keys = [marker[:4] for marker in owed]
        return self._database.write(lambda db: db.executemany(_FORGET_OWED, keys), lambda _: None)

    # Pending offsets, as groups see them

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """True if an undecided transaction may still change the group's offset there."""
        pending = self._pending.get(group)
        return pending is not None and (topic, partition) in pending

    def has_pending(self, group: str) -> bool:
        return group in self._pending

    def pending_of(self, group: str) -> Iterable[tuple[str, int]]:
        """The topics and partitions in which the group has an offset pending."""
        return self._pending.get(group, ())

    def topics_pending(self, name: str) -> set[str]:
        """The topics in which a transaction has offsets pending."""
        return {
            topic
            for group in self._groups_of.get(name, ())
            for (topic, _), names in self._pending.get(group, {}).items()
            if name in names
        }

    def drop_pending(
        self, db: sqlite3.Connection, group: str, partitions: Iterable[tuple[str, int]] | None
    ) -> None:
        """Delete pending offsets, as part of another write.

        What is committed or deleted there now counts, whatever becomes of the transactions. None means
        all of the group's.
        """
        if partitions is None:
            db.execute('DELETE FROM pending_offsets WHERE "group" = ?', (group,))
        elif db.execute('SELECT 1 FROM pending_offsets WHERE "group" = ? LIMIT 1', (group,)).fetchone():
            db.executemany(
                'DELETE FROM pending_offsets WHERE "group" = ? AND topic = ? AND partition = ?',
                [(group, topic, partition) for topic, partition in partitions],
            )

    def forget_pending(self, group: str, partitions: Iterable[tuple[str, int]] | None) -> None:
        """The same in memory, once the write is durable."""
        pending = self._pending.get(group)
        if pending is None:
            return
        for key in list(pending) if partitions is None else partitions:
            pending.pop(key, None)
        if not pending:
            del self._pending[group]

    def forget_topic(self, topic: str) -> None:
        for group, pending in list(self._pending.items()):
            self.forget_pending(group, [key for key in pending if key[0] == topic])

    def _forget_transaction(self, name: str) -> None:
        for group in self._groups_of.pop(name, ()):
            pending = self._pending.get(group, {})
            for key in [key for key, names in pending.items() if name in names]:
                pending[key].discard(name)
                if not pending[key]:
                    del pending[key]
            if not pending:
                self._pending.pop(group, None)

    def _note(self, name: str, group: str, topic: str, partition: int) -> None:
        self._pending.setdefault(group, {}).setdefault((topic, partition), set()).add(name)
        self._groups_of.setdefault(name, set()).add(group)


_FORGET_OWED = (
    "DELETE FROM owed_markers WHERE topic_id = ? AND partition = ? AND producer_id = ? AND first_offset = ?"
)


def _put(db: sqlite3.Connection, transaction: TransactionalIdState, added: AddedToTransaction) -> None:
    # Not INSERT OR REPLACE, which deletes the row first, and the pending offsets with it.
    db.execute(
        "INSERT INTO transactions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET producer_id = excluded.producer_id, epoch = excluded.epoch, "
        "timeout_ms = excluded.timeout_ms, updated_ms = excluded.updated_ms, state = excluded.state, "
        "start_ms = excluded.start_ms, previous_producer_id = excluded.previous_producer_id, "
        "previous_epoch = excluded.previous_epoch, kept_producer_id = excluded.kept_producer_id, "
        "kept_epoch = excluded.kept_epoch, added = excluded.added",
        (
            transaction.name,
            *transaction.producer,
            transaction.timeout_ms,
            transaction.updated_ms,
            transaction.state.value,
            transaction.start_ms,
            *transaction.previous,
            *transaction.kept,
            added.to_text(),
        ),
    )
