"""Keeps keyed state in Cassandra tables.

    millstream_state            one row per entry: operator, bucket, container, slice, key, value, due
    millstream_state_due        which keys may be due when: operator, bucket, container, due, key
    millstream_state_versions   up to which version each bucket of an operator has folded changes

There are no transactions here, and none are needed. Every write uses the *version as its timestamp*, by
which Cassandra decides what is later. So writing a version twice changes nothing, and a write that
arrives after a newer version has no effect. The version itself is written last, so a fold that stopped
halfway is done again.

Due times are in a table of their own, ordered by time. Its rows are only hints: a hint is written after the
entry, and a reader that finds a hint that does not match its entry removes it. ``slice`` keeps partitions
small.

A worker has one session with each keyspace, for all its buckets.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from millstream.core.errors import StateConnectionError, StateError
from millstream.pipeline.kernel.state.table import TableEntry, TableId

_TABLES = (
    "CREATE TABLE IF NOT EXISTS millstream_state (operator text, bucket int, container text, slice int,"
    " key blob, value blob, due bigint, PRIMARY KEY ((operator, bucket, container, slice), key))",
    # Hints are checked against their entries, so a deleted hint that reappears does no harm. Therefore
    # Cassandra need not remember the deletions for more than an hour.
    "CREATE TABLE IF NOT EXISTS millstream_state_due (operator text, bucket int, container text,"
    " due bigint, key blob, version bigint, PRIMARY KEY ((operator, bucket, container), due, key))"
    " WITH gc_grace_seconds = 3600",
    "CREATE TABLE IF NOT EXISTS millstream_state_versions (operator text, bucket int, version bigint,"
    " containers set<text>, PRIMARY KEY ((operator, bucket)))",
)
_STATEMENTS = {
    "get": "SELECT key, value, due FROM millstream_state WHERE operator = ? AND bucket = ? AND container = ?"
    " AND slice = ? AND key IN ?",
    "put": "INSERT INTO millstream_state (operator, bucket, container, slice, key, value, due)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
    "remove": "DELETE FROM millstream_state USING TIMESTAMP ? WHERE operator = ? AND bucket = ?"
    " AND container = ? AND slice = ? AND key = ?",
    "scan": "SELECT key, value, due FROM millstream_state WHERE operator = ? AND bucket = ?"
    " AND container = ? AND slice = ?",
    "hints": "SELECT due, key, version FROM millstream_state_due WHERE operator = ? AND bucket = ?"
    " AND container = ? AND (due, key) > (?, ?) AND (due) <= (?) LIMIT ?",
    "hint": "INSERT INTO millstream_state_due (operator, bucket, container, due, key, version)"
    " VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
    "forget": "DELETE FROM millstream_state_due USING TIMESTAMP ? WHERE operator = ? AND bucket = ?"
    " AND container = ? AND due = ? AND key = ?",
    "folded": "SELECT version FROM millstream_state_versions WHERE operator = ? AND bucket = ?",
    "fold": "UPDATE millstream_state_versions USING TIMESTAMP ? SET version = ?, containers = containers + ?"
    " WHERE operator = ? AND bucket = ?",
    "containers": "SELECT containers FROM millstream_state_versions WHERE operator = ? AND bucket = ?",
    "drop": "DELETE FROM millstream_state WHERE operator = ? AND bucket = ? AND container = ? AND slice = ?",
    "drop_hints": "DELETE FROM millstream_state_due WHERE operator = ? AND bucket = ? AND container = ?",
    "drop_version": "DELETE FROM millstream_state_versions WHERE operator = ? AND bucket = ?",
}
_SLICES = 16
_KEYS = 100  # per statement
_PAGE = 1000
_AT_ONCE = 64  # statements in flight
_PORT = 9042
_sessions: dict[str, _Session] = {}


class _Session:
    """A connection to a keyspace, with the tables created and the statements prepared."""

    def __init__(self, url: str) -> None:
        try:
            from cassandra import ConsistencyLevel
            from cassandra.auth import PlainTextAuthProvider
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        except ImportError:
            raise StateError(
                "state in Cassandra needs the Cassandra driver on every worker:"
                ' pip install "millstream[cassandra]"'
            ) from None
        hosts, port, keyspace, user, password = parsed(url)
        # Writes and reads both use a majority, so a read sees every completed write.
        profile = ExecutionProfile(consistency_level=ConsistencyLevel.LOCAL_QUORUM, request_timeout=60)
        self._cluster = Cluster(
            hosts,
            port=port,
            auth_provider=PlainTextAuthProvider(user, password) if user else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=20,
        )
        try:
            self.session: Any = self._cluster.connect(keyspace)
            for statement in _TABLES:
                self.session.execute(statement)
            self.prepared = {name: self.session.prepare(text) for name, text in _STATEMENTS.items()}
        except Exception as error:  # the driver raises a dozen classes, from four modules
            self._cluster.shutdown()
            raise StateConnectionError(
                f"can't keep state in Cassandra, keyspace {keyspace!r} at {', '.join(hosts)}: {error}"
            ) from error

    def run(self, name: str, *values: Any) -> Any:
        return self._said(lambda: self.session.execute(self.prepared[name], values))

    def run_all(self, statements: Iterable[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """Run many statements, some at a time; return the results in the order of the statements."""
        from cassandra.concurrent import execute_concurrent

        bound = ((self.prepared[name], values) for name, values in statements)
        done = self._said(
            lambda: execute_concurrent(self.session, bound, _AT_ONCE, raise_on_first_error=True)
        )
        return [result for _, result in done]

    def _said(self, question: Any) -> Any:
        try:
            return question()
        except Exception as error:
            raise StateConnectionError(f"Cassandra, where state is kept, says: {error}") from error


def parsed(url: str) -> tuple[list[str], int, str, str, str]:
    """Hosts, port, keyspace, user and password of ``cassandra://user:password@host,host:9042/keyspace``."""
    parts = urlsplit(url)
    login, _, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    hosts = place.split(",")
    ports = {port for _, _, port in (host.partition(":") for host in hosts) if port}
    keyspace = parts.path.strip("/")
    if len(ports) > 1 or any(not port.isdigit() for port in ports) or not keyspace:
        raise StateError(f"{place + parts.path!r} is not host,host:port/keyspace, with one port for all")
    port = int(ports.pop()) if ports else _PORT
    return [host.partition(":")[0] for host in hosts], port, keyspace, unquote(user), unquote(password)


def session(url: str) -> _Session:
    """This process's session with a keyspace."""
    if url not in _sessions:
        _sessions[url] = _Session(url)
    return _sessions[url]


def _slice(key: bytes) -> int:
    return zlib.crc32(key) % _SLICES


class CassandraTable:
    """A ``Table`` in Cassandra."""

    lasting = True

    def __init__(self, url: str, space: TableId) -> None:
        self._server = session(url)
        self._bucket_id = tuple(space)

    def folded(self) -> int:
        row = self._server.run("folded", *self._bucket_id).one()
        return 0 if row is None or row.version is None else int(row.version)

    def get_many(self, container: str, keys: Sequence[bytes]) -> Mapping[bytes, TableEntry]:
        by_slice: dict[int, list[bytes]] = {}
        for key in keys:
            by_slice.setdefault(_slice(key), []).append(key)
        questions = [
            ("get", (*self._bucket_id, container, slice_, some[start : start + _KEYS]))
            for slice_, some in by_slice.items()
            for start in range(0, len(some), _KEYS)
        ]
        found: dict[bytes, TableEntry] = {}
        for rows in self._server.run_all(questions):
            found.update((row.key, TableEntry(row.value, row.due)) for row in rows)
        return found

    def fold(self, version: int, changes: Mapping[str, Mapping[bytes, TableEntry | None]]) -> None:
        if self.folded() >= version:
            return
        for container, entries in changes.items():
            bucket_id = (*self._bucket_id, container)
            self._server.run_all(
                ("remove", (version, *bucket_id, _slice(key), key))
                if one is None
                else ("put", (*bucket_id, _slice(key), key, one.value, one.due, version))
                for key, one in entries.items()
            )
            self._server.run_all(
                ("hint", (*bucket_id, one.due, key, version, version))
                for key, one in entries.items()
                if one is not None and one.due is not None
            )
        self._server.run("fold", version, version, set(changes), *self._bucket_id)

    def due(
        self, container: str, until: int, after: tuple[int, bytes] | None
    ) -> list[tuple[bytes, TableEntry]]:
        after = after or (-(1 << 63), b"")
        bucket_id = (*self._bucket_id, container)
        while hints := list(self._server.run("hints", *bucket_id, *after, until, _PAGE)):
            entries = self.get_many(container, [hint.key for hint in hints])
            held = [hint for hint in hints if hint.key in entries and entries[hint.key].due == hint.due]
            stale = [hint for hint in hints if hint.key not in entries or entries[hint.key].due != hint.due]
            self._server.run_all(("forget", (hint.version, *bucket_id, hint.due, hint.key)) for hint in stale)
            if held:
                return [(hint.key, entries[hint.key]) for hint in held]
            after = hints[-1].due, hints[-1].key
        return []

    def scan(self, container: str) -> Iterator[tuple[bytes, TableEntry]]:
        for slice_ in range(_SLICES):
            for row in self._server.run("scan", *self._bucket_id, container, slice_):
                yield row.key, TableEntry(row.value, row.due)

    def rebuild(
        self, version: int, entries: Iterable[tuple[str, Sequence[tuple[bytes, TableEntry]]]]
    ) -> None:
        raise NotImplementedError("durable state is never rebuilt")

    def drop(self) -> None:
        """Delete everything. The deletes carry the time of day as timestamp, which is greater than any
        version, so state under the same name would count as older and stay deleted."""
        row = self._server.run("containers", *self._bucket_id).one()
        for container in (row.containers or ()) if row is not None else ():
            self._server.run_all(("drop", (*self._bucket_id, container, slice_)) for slice_ in range(_SLICES))
            self._server.run("drop_hints", *self._bucket_id, container)
        self._server.run("drop_version", *self._bucket_id)

    def close(self) -> None:
        """Does nothing: the session belongs to the process, and other buckets use it too."""
