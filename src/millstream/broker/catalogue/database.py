"""The catalogue's SQLite file, and the one thread that writes it.

Changes that wait are gathered into one synced commit, so a hundred simultaneous offset commits cost one
sync. If the disk refuses a commit, its changes fail with ``CatalogueFailed`` and are rolled back; the
next write tries again. On a full disk, the code that opened the database may free space first. What the
tables mean is left to the catalogue.

While a standby follows, the statements of every commit are recorded, in order, with their values. Run
again on the same tables, they make the same changes. A standby runs them, and nothing else writes to its
tables.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import queue
import sqlite3
import threading
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from millstream.broker.catalogue.feed import CatalogueFeed, Recording, Statement
from millstream.core.errors import CatalogueDamaged, CatalogueFailed, DataDirectoryError, RequestRefused
from millstream.log.directory import META_PROPERTIES

_log = logging.getLogger(__name__)

FILE_NAME = "catalogue.db"
PRODUCER_IDS_SKIPPED = 1 << 32  # by a broker that can't know how many were given out before it
_VERSION = 4  # of the schema; newer ones are refused
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    name TEXT PRIMARY KEY,
    metric_name TEXT NOT NULL UNIQUE,
    id BLOB NOT NULL UNIQUE,
    partitions INTEGER NOT NULL,
    overrides TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE offsets (
    "group" TEXT NOT NULL,
    topic TEXT NOT NULL REFERENCES topics (name) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    commit_ms INTEGER NOT NULL,
    expire_ms INTEGER NOT NULL,
    PRIMARY KEY ("group", topic, partition)
) WITHOUT ROWID;
CREATE INDEX offsets_by_topic ON offsets (topic);
CREATE TABLE losses (
    "group" TEXT NOT NULL,
    topic TEXT NOT NULL REFERENCES topics (name) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    lost_ms INTEGER NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY ("group", topic, partition)
) WITHOUT ROWID;
CREATE INDEX losses_by_topic ON losses (topic);
CREATE TABLE groups (name TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE share_partitions (
    "group" TEXT NOT NULL,
    topic_id BLOB NOT NULL REFERENCES topics (id) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    start_offset INTEGER NOT NULL,
    runs BLOB NOT NULL,
    PRIMARY KEY ("group", topic_id, partition)
) WITHOUT ROWID;
CREATE INDEX share_partitions_by_topic ON share_partitions (topic_id);
CREATE TABLE transactions (
    name TEXT PRIMARY KEY,
    producer_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    timeout_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    previous_producer_id INTEGER NOT NULL,
    previous_epoch INTEGER NOT NULL,
    kept_producer_id INTEGER NOT NULL,
    kept_epoch INTEGER NOT NULL,
    added TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE pending_offsets (
    "transaction" TEXT NOT NULL REFERENCES transactions (name) ON DELETE CASCADE,
    "group" TEXT NOT NULL,
    topic TEXT NOT NULL REFERENCES topics (name) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    commit_ms INTEGER NOT NULL,
    expire_ms INTEGER NOT NULL,
    PRIMARY KEY ("transaction", "group", topic, partition)
) WITHOUT ROWID;
CREATE INDEX pending_by_group ON pending_offsets ("group", topic, partition);
CREATE INDEX pending_by_topic ON pending_offsets (topic);
CREATE TABLE owed_markers (
    topic_id BLOB NOT NULL,
    partition INTEGER NOT NULL,
    producer_id INTEGER NOT NULL,
    first_offset INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    is_commit INTEGER NOT NULL,
    "transaction" TEXT NOT NULL,
    PRIMARY KEY (topic_id, partition, producer_id, first_offset)
) WITHOUT ROWID;
"""
R = TypeVar("R")
_GATHER_AT_MOST = 1000  # changes in one commit: bounds how long the first of them waits


class _Change(NamedTuple):
    write: Callable[[sqlite3.Connection], Any]  # in the writer thread, inside the gathered transaction
    remember: Callable[[Any], Any]  # on the loop, once synced; what it returns is the future's result
    future: asyncio.Future[Any]
    is_told: bool  # recorded for the standbys


class CatalogueDatabase:
    """One open catalogue file. A ``path`` of None is a database in memory.

    ``make_room`` is called in the writer thread when the disk is full. If it returns True, the commit is
    tried once more.
    """

    def __init__(self, path: Path | None, make_room: Callable[[], bool] = bool) -> None:
        self._make_room = make_room
        self.where = str(path) if path is not None else ":memory:"
        self._closed = False
        self._waiting: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._written: deque[tuple[list[tuple[_Change, Any]], int, list[Statement]]] = deque()
        self._db = self._open()
        self._writer: threading.Thread | None = None  # started by the first write
        self.feed: CatalogueFeed | None = None  # the recorded commits, while standbys follow
        self._number = 0  # of the newest recorded commit
        self._refusal: RequestRefused | None = None

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.rows("SELECT name, value FROM facts"))

    @property
    def changes(self) -> int:
        """The number of rows changed since the file was opened."""
        return self._db.total_changes

    @property
    def schema(self) -> str:
        """Identifies the tables: their version and a checksum of their definition."""
        return f"{_VERSION}:{zlib.crc32(_SCHEMA.encode()):08x}"

    def rows(self, query: str) -> Iterable[tuple[Any, ...]]:
        """Query the file. Only before the first write."""
        try:
            return self._db.execute(query).fetchall()
        except sqlite3.DatabaseError as error:
            raise damaged(self.where, str(error)) from None

    def run_now(self, statement: str, values: list[tuple[Any, ...]]) -> None:
        """Change the file before anything else is written."""
        if values:
            self._db.execute("BEGIN")
            self._db.executemany(statement, values)
            self._db.execute("COMMIT")

    def read_now(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """Run ``read`` on the file. Only before the first write."""
        return read(self._db)

    def change_now(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Make a change of several statements before anything else is written."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            write(self._db)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def write(
        self, write: Callable[[sqlite3.Connection], Any], remember: Callable[[Any], Any]
    ) -> asyncio.Future[Any]:
        """Run ``write`` in the next commit. Once it is synced, call ``remember`` on the loop.

        ``remember`` gets the result of ``write``. If ``write`` raises ``RequestRefused``, only this change is
        undone, and the error goes to the future.
        """
        if self._refusal is not None:
            raise RequestRefused(self._refusal.code, str(self._refusal))
        return self._put(write, remember, is_told=True)

    def write_copied(
        self, write: Callable[[sqlite3.Connection], Any], remember: Callable[[Any], Any]
    ) -> asyncio.Future[Any]:
        """The same for what a leader has decided, and for what concerns only this broker."""
        return self._put(write, remember, is_told=False)

    def _put(
        self, write: Callable[[sqlite3.Connection], Any], remember: Callable[[Any], Any], *, is_told: bool
    ) -> asyncio.Future[Any]:
        if self._closed:
            raise CatalogueFailed("the broker is shutting down")
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_until_closed, name="catalogue", daemon=True)
            self._writer.start()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.put(_Change(write, remember, future, is_told))
        return future

    def follow(self, added: Callable[[], None]) -> CatalogueFeed:
        """Record all commits from now on. ``added`` is called on the loop after each."""
        if self.feed is None:
            self.feed = CatalogueFeed(self._number, added)
        return self.feed

    def pinned(self) -> asyncio.Future[tuple[int, sqlite3.Connection]]:
        """A reader that is pinned to one commit, and that commit's number.

        The reader does not see later writes. It is meant for another thread, which closes it.
        """

        def pin(_: sqlite3.Connection) -> tuple[int, sqlite3.Connection]:
            # The changes being gathered are not committed yet. The reader does not see them, and the
            # number does not count them.
            reader = sqlite3.connect(self.where, isolation_level=None, check_same_thread=False)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM facts").fetchone()
            return self._number, reader

        return self.write_copied(pin, lambda pinned: pinned)

    def save_as(self, path: Path) -> None:
        """Copy what is committed into another file."""
        with (
            contextlib.closing(sqlite3.connect(self.where)) as source,
            contextlib.closing(sqlite3.connect(path)) as target,
        ):
            source.backup(target)

    def refuse(self, reason: RequestRefused | None) -> None:
        """Refuse all changes but a leader's. None allows them again."""
        self._refusal = reason

    def close(self) -> None:
        """Write what is waiting, settle every future, close the file. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._waiting.put(None)
            self._writer.join()
            self._settle()
        self._db.close()

    def _open(self) -> sqlite3.Connection:
        where = self.where
        try:
            db = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise DataDirectoryError(f"can't open the catalogue {where}: {error}") from None
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            create_or_check(db, where)
        except sqlite3.OperationalError as error:  # permissions, locks, a read-only or full disk
            db.close()
            raise DataDirectoryError(f"can't use the catalogue {where}: {error}") from None
        except sqlite3.DatabaseError as error:
            db.close()
            raise damaged(where, str(error)) from None
        except BaseException:
            db.close()
            raise
        return db

    def _write_until_closed(self) -> None:
        closing = False
        while not closing:
            change = self._waiting.get()
            gathered: list[_Change] = []
            while change is not None:
                gathered.append(change)
                if len(gathered) == _GATHER_AT_MOST:
                    break
                try:
                    change = self._waiting.get_nowait()
                except queue.Empty:
                    break
            closing = change is None
            if gathered:
                self._written.append(self._commit(gathered))
                # If the loop is closed, nothing waits any more, and close() settles what is left.
                with contextlib.suppress(RuntimeError):
                    gathered[0].future.get_loop().call_soon_threadsafe(self._settle)

    def _commit(
        self, gathered: list[_Change], *, room_was_made: bool = False
    ) -> tuple[list[tuple[_Change, Any]], int, list[Statement]]:
        """Write changes in one transaction.

        Returns each change with its outcome (what it wrote, or why it could not), the commit's number,
        and its recorded statements, if standbys follow.
        """
        db = self._db
        outcomes: list[tuple[_Change, Any]] = []
        recording = Recording(db)
        is_followed = self.feed is not None
        try:
            db.execute("BEGIN IMMEDIATE")
            for change in gathered:
                db.execute("SAVEPOINT change")
                before = len(recording.statements)
                try:
                    given: Any = recording if is_followed and change.is_told else db
                    outcomes.append((change, change.write(given)))
                except RequestRefused as refused:
                    db.execute("ROLLBACK TO change")
                    del recording.statements[before:]
                    outcomes.append((change, refused))
                except (ValueError, ArithmeticError, sqlite3.IntegrityError) as error:
                    # A value that SQLite can't hold fails only this change, not the others in the commit.
                    db.execute("ROLLBACK TO change")
                    del recording.statements[before:]
                    outcomes.append((change, CatalogueFailed(f"can't be kept in the catalogue: {error}")))
                db.execute("RELEASE change")
            db.execute("COMMIT")
        except Exception as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            if full and not room_was_made and self._make_room():
                return self._commit(gathered, room_was_made=True)
            _log.error("the catalogue could not be written: %s", error)
            failed = CatalogueFailed(f"the catalogue could not be written: {error}")
            return [(change, failed) for change in gathered], self._number, []
        if recording.statements:
            self._number += 1
        return outcomes, self._number, recording.statements

    def _settle(self) -> None:
        """On the loop: update memory and resolve the futures, in the order of the writes."""
        while self._written:
            outcomes, number, statements = self._written.popleft()
            if statements and self.feed is not None:
                self.feed.add(number, statements)
            for change, outcome in outcomes:
                if isinstance(outcome, RequestRefused):
                    if not change.future.done():
                        change.future.set_exception(outcome)
                    continue
                result = change.remember(outcome)
                if not change.future.done():
                    change.future.set_result(result)


def ignore_failure(future: asyncio.Future[None]) -> None:
    """Ignore the outcome of a change that nothing waits for. A failure (a full disk) is logged already."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def fact(db: sqlite3.Connection, name: str) -> str | None:
    row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def set_fact(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


def damaged(where: str, found: str) -> DataDirectoryError:
    return CatalogueDamaged(
        f"the catalogue {where} is damaged ({found}). {rebuild_advice(Path(where).parent)}"
    )


def is_lost(directory: Path) -> bool:
    """True if a broker has used this directory, but its catalogue is missing or empty."""
    path = directory / FILE_NAME
    is_gone = not path.exists() or not path.stat().st_size
    return is_gone and (directory / META_PROPERTIES).exists()


def lost(directory: Path) -> CatalogueDamaged:
    return CatalogueDamaged(f"the catalogue {directory / FILE_NAME} is missing. {rebuild_advice(directory)}")


def rebuild_advice(directory: Path) -> str:
    return (
        "The records are in files of their own and untouched. Restore the catalogue from a backup, or have "
        f"it rebuilt with `millstream log rebuild-catalogue {directory}`, which says what can't be brought "
        "back"
    )


def create_or_check(db: sqlite3.Connection, where: str, *, thorough: bool = False) -> None:
    """Create the tables of a new file, or check that its tables are ours and intact.

    ``thorough`` checks every entry of every index too. Raises DataDirectoryError, or
    sqlite3.DatabaseError if SQLite can't continue.
    """
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > _VERSION:
        raise DataDirectoryError(
            f"the catalogue {where} was written by a newer millstream (its schema is {version}, this one "
            f"knows {_VERSION}); start it with that version, or with another data directory"
        )
    if version == _VERSION:
        check = "integrity_check" if thorough else "quick_check"
        found = db.execute(f"PRAGMA {check}(1)").fetchone()[0]
        if found != "ok":
            raise damaged(where, found)
        return
    if version:
        raise DataDirectoryError(
            f"the catalogue {where} was written by an older millstream (its schema is {version}, this one "
            f"knows {_VERSION}) and can't be converted; start it with that version, or with another data "
            "directory"
        )
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise DataDirectoryError(
            f"{where} is a database, but not millstream's; move it away or use another data directory"
        )
    db.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";"):
        db.execute(statement)
    set_fact(db, "cluster.id", base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode())
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")
