"""Process each message once if its effect is in a database: an inbox, kept in that database.

A message that was processed, but whose acknowledgement was lost, comes again. So the inbox notes which
messages were processed. The note goes into the database of their effects, in the same transaction: both are
there, or neither.

    from millstream import client

    database = psycopg.connect("postgresql://...")        # or sqlite3.connect("orders.db")
    inbox = client.Inbox(database, "billing")

    with inbox.read("127.0.0.1:9092", ["payments"]) as batches:
        for messages in batches:                          # each batch is one database transaction
            for message in messages:
                database.execute("UPDATE accounts SET ...", ...)

Asking for the next batch commits the previous one. Leaving the loop in any other way, by an exception or a
break, rolls back, and the batch is read again. ``stop`` ends the loop cleanly. With your own consumer, or
with another kind of queue:

    with inbox.once(messages) as new:                     # those of them that were not processed before
        for message in new: ...

    with inbox.once(messages, id=lambda message: message.headers["id"]) as new: ...

Theory: the messages of a partition come in order, so one number per partition is enough: the offset after
the last one processed. ``read`` starts from that, whatever the consumer group says; the group's own offsets
are committed only for tools that show its lag. Where order does not hold (a queue that redelivers, a
producer that sends twice), a message needs an id, and every id is a row that is kept until it expires. The
rows with the offsets are locked until the transaction ends. So two processes that both believe they own a
partition take turns, and the second one finds the messages processed. The id of the topic is stored beside
the offsets: a topic that was deleted and created again has another id, and ``read`` stops there instead of
taking its messages for processed ones.

    millstream_inbox_offset   inbox, topic, partition: the next offset
    millstream_inbox_topic    inbox, topic: its id
    millstream_inbox_id       inbox, id: when it was processed

Nothing else may commit within the block: it is refused, because the inbox's note and the effect would part.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from millstream.client.connect import Connection
from millstream.client.dialects import Dialect, dialect_of
from millstream.client.librdkafka.batches import GroupReader
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.clock import Clock, SystemClock
from millstream.core.errors import ConfigError, DataLoss

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger(__name__)

M = TypeVar("M")

_CLEAN_EVERY_MS = 60_000

_TABLES = (
    "CREATE TABLE IF NOT EXISTS millstream_inbox_offset (inbox TEXT NOT NULL, topic TEXT NOT NULL,"
    " partition INTEGER NOT NULL, next BIGINT NOT NULL, PRIMARY KEY (inbox, topic, partition))",
    "CREATE TABLE IF NOT EXISTS millstream_inbox_topic (inbox TEXT NOT NULL, topic TEXT NOT NULL,"
    " id TEXT NOT NULL, PRIMARY KEY (inbox, topic))",
    "CREATE TABLE IF NOT EXISTS millstream_inbox_id (inbox TEXT NOT NULL, id TEXT NOT NULL,"
    " processed_ms BIGINT NOT NULL, PRIMARY KEY (inbox, id))",
    "CREATE INDEX IF NOT EXISTS millstream_inbox_id_by_time ON millstream_inbox_id (inbox, processed_ms)",
)
_TOPIC_ID = "SELECT id FROM millstream_inbox_topic WHERE inbox = ? AND topic = ?"
_NOTE_TOPIC = "INSERT INTO millstream_inbox_topic VALUES (?, ?, ?) ON CONFLICT (inbox, topic) DO NOTHING"
# Locks the row, and creates it if there is none. -1 is not the offset of any message.
_CLAIM = (
    "INSERT INTO millstream_inbox_offset VALUES (?, ?, ?, -1) ON CONFLICT (inbox, topic, partition)"
    " DO UPDATE SET next = millstream_inbox_offset.next RETURNING next"
)
_ADVANCE = "UPDATE millstream_inbox_offset SET next = ? WHERE inbox = ? AND topic = ? AND partition = ?"
_NOTE = (
    "INSERT INTO millstream_inbox_id SELECT ?, value, ? FROM {table} AS given WHERE true ORDER BY value"
    " ON CONFLICT (inbox, id) DO NOTHING RETURNING id"
)
_EXPIRE = "DELETE FROM millstream_inbox_id WHERE inbox = ? AND processed_ms < ?"


class Inbox:
    """The messages that a service has processed, kept in its database. One thread, one connection, one inbox.

    ``database`` is a connection of sqlite3 or psycopg (3) with no transaction open. ``name`` tells apart
    the services that share the database.
    """

    def __init__(
        self, database: Any, name: str, *, keep: timedelta = timedelta(days=7), clock: Clock | None = None
    ) -> None:
        """``keep``: how long ids are remembered, which is how late a message may come again."""
        if not name:
            raise ConfigError("an inbox needs a name: that of the service whose messages it remembers")
        self.name = name
        self.keep = keep
        self._clock = clock or SystemClock()
        self._dialect: Dialect = dialect_of(database)
        self._last_cleaned = 0
        with self._dialect.transaction(alone=True):
            for statement in _TABLES:
                self._dialect.execute(statement)

    @contextlib.contextmanager
    def once(self, messages: M | Iterable[M], *, id: Callable[[M], str] | None = None) -> Iterator[list[M]]:
        """One database transaction, with those of the messages that were not processed before.

        When the block ends, its changes on the connection are committed together with the fact that the
        messages are processed. An exception rolls both back. By default a message is identified by topic,
        partition and offset (``message.topic()`` and so on), and the messages of a partition come in order.
        ``id`` returns the identity of a message instead, which works for any kind of message.
        """
        given = list(messages) if isinstance(messages, Iterable) else [messages]
        with self._dialect.transaction():
            if id is None:
                yield self._new_by_offset(given)
            else:
                yield self._new_by_id(given, id)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of every partition that this inbox has processed messages of."""
        with self._dialect.transaction():
            found = self._dialect.execute(
                "SELECT topic, partition, next FROM millstream_inbox_offset WHERE inbox = ? AND next >= 0",
                (self.name,),
            )
        return {TopicPartition(topic, partition): offset for topic, partition, offset in found}

    def move(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue elsewhere: after a topic was created again, or to process messages again."""
        with self._dialect.transaction():
            for topic in sorted({place.topic for place in positions}):
                self._dialect.execute(
                    "DELETE FROM millstream_inbox_topic WHERE inbox = ? AND topic = ?", (self.name, topic)
                )
            for place in sorted(positions):
                self._dialect.execute(_CLAIM, (self.name, *place))
                self._dialect.execute(_ADVANCE, (positions[place], self.name, *place))

    def read(
        self,
        address: str | Connection,
        topics: Sequence[str],
        *,
        group: str | None = None,
        from_start: bool = True,
        most: int = 1000,
        linger: float = 0.05,
        wait: float | None = None,
        id: Callable[[Message], str] | None = None,
        consumer: Mapping[str, Any] | None = None,
    ) -> Reading:
        """Read topics as a consumer group (by default the inbox's name), from where this inbox left off.

        A batch has at most ``most`` messages, gathered for ``linger`` seconds. ``wait``: end after so many
        seconds without a message. ``id``: as in ``once``; then the group's own offsets say where to begin.
        ``consumer``: further librdkafka properties.
        """
        connection = Connection.of(address) if isinstance(address, str) else address

        cluster = Cluster(connection)

        def positions() -> dict[TopicPartition, int]:
            stand = self.positions()
            with self._dialect.transaction():
                self._check_topics(cluster, {place.topic for place in stand})
            return stand

        def open_reader() -> GroupReader:
            return GroupReader(
                connection,
                group or self.name,
                topics,
                from_start=from_start,
                most=most,
                linger=linger,
                positions=positions if id is None else None,
                repair="" if id is not None else "say where with inbox.move({TopicPartition(...): offset})",
                properties=consumer,
            )

        return Reading(self, open_reader, cluster, wait, id)

    def _check_topics(self, cluster: Cluster, topics: Collection[str], *, note: bool = False) -> None:
        """Raise DataLoss if a topic is not the one whose offsets this inbox has recorded."""
        cluster.topics(topics)
        for topic, now in sorted(cluster.known_topic_ids(topics).items()):
            noted = self._dialect.execute(_TOPIC_ID, (self.name, topic))
            if noted and noted[0][0] != now:
                raise DataLoss(
                    f"topic {topic!r} was deleted and created again since inbox {self.name!r} processed"
                    " messages of it, so its offsets mean other messages now. To process the new topic from"
                    f" its start: inbox.move({{TopicPartition({topic!r}, 0): 0}}), and so for each partition"
                )
            if note and not noted:
                self._dialect.execute(_NOTE_TOPIC, (self.name, topic, now))

    def _new_by_offset(self, messages: list[Any]) -> list[Any]:
        by_place: dict[TopicPartition, list[Any]] = {}
        for message in messages:
            place = TopicPartition(message.topic(), message.partition())
            by_place.setdefault(place, []).append(message)
        new: list[Any] = []
        for place in sorted(by_place):  # in a fixed order, so that two processes can't deadlock
            ((following,),) = self._dialect.execute(_CLAIM, (self.name, *place))
            fresh = []
            for message in by_place[place]:
                if message.offset() >= following:
                    following = message.offset() + 1
                    fresh.append(message)
            if fresh:
                self._dialect.execute(_ADVANCE, (following, self.name, *place))
            new += fresh
        return new

    def _new_by_id(self, messages: list[M], id: Callable[[M], str]) -> list[M]:
        now = self._clock.now_ms()
        by_id: dict[str, M] = {}
        for message in messages:
            by_id.setdefault(id(message), message)
        table, value = self._dialect.each(list(by_id))
        noted = self._dialect.execute(_NOTE.format(table=table), (self.name, now, value))
        new = {name for (name,) in noted}
        if now - self._last_cleaned > _CLEAN_EVERY_MS:
            self._last_cleaned = now
            self._dialect.execute(_EXPIRE, (self.name, now - self.keep // timedelta(milliseconds=1)))
        return [message for name, message in by_id.items() if name in new]


class Reading:
    """The loop of ``Inbox.read``: batches of messages that were not processed before, each in a transaction.

    Connected within its block. ``stop`` ends the loop once the current batch is committed.
    """

    def __init__(
        self,
        inbox: Inbox,
        open_reader: Callable[[], GroupReader],
        cluster: Cluster,
        wait: float | None,
        id: Callable[[Message], str] | None,
    ) -> None:
        self._inbox = inbox
        self._open_reader = open_reader
        self._cluster = cluster
        self._wait = wait
        self._id = id
        self._stopped = False
        self._reader: GroupReader | None = None
        self._loop: Generator[list[Message], None, None] | None = None

    def __enter__(self) -> Self:
        self._reader = self._open_reader()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._loop is not None:
                self._loop.close()
        finally:
            self._cluster.close()
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def stop(self) -> None:
        """End the loop once the current batch is committed. May be called from a signal handler."""
        self._stopped = True

    def __iter__(self) -> Iterator[list[Message]]:
        if self._reader is None:
            raise ConfigError("not connected: use it in a with statement")
        if self._loop is not None:
            self._loop.close()
        self._loop = self._batches(self._reader)
        return self._loop

    def _batches(self, reader: GroupReader) -> Generator[list[Message], None, None]:
        while messages := reader.read(ended=lambda: self._stopped, wait=self._wait):
            try:
                with self._inbox.once(messages, id=self._id) as new:
                    if self._id is None:
                        # Checked after the messages came, so they are from the topic that has this id.
                        topics = {message.topic() for message in messages}
                        self._inbox._check_topics(self._cluster, topics, note=True)
                    if new:
                        yield new
            except BaseException:
                reader.rewind(messages)
                raise
            # The batch is processed, whatever becomes of this commit: only tools that show lag need it.
            last = {TopicPartition(m.topic(), m.partition()): m.offset() for m in messages}
            reader.commit({place: offset + 1 for place, offset in last.items()})
