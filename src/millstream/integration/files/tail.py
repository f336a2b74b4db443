"""Send lines of log files to a topic, each exactly once: a loop of reading, sending and committing.

One transaction holds the lines as records, those that could not be parsed in the topic for them, and how
far each file was read (``integration.files.progress``). Whatever goes wrong (the broker is away, the
transaction is rolled back), the loop starts again from what the log says was read, just as after kill -9.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.transaction import Headers, Transaction, Transactions
from millstream.core.clock import Clock
from millstream.core.errors import BrokerUnavailable, MillstreamError, ProducerFenced, TransactionAborted
from millstream.integration.files.follow import LONGEST_LINE, FileFollower, Line, ReadLines, TrackedFile
from millstream.integration.files.parse import Parse, Parsed
from millstream.integration.files.progress import TailProgress

BATCH_BYTES = 4 << 20  # read in one transaction
POLL = 0.25  # seconds between two looks at files with nothing new
_AHEAD_MS = 30 * 60_000  # records get no time further ahead than this: brokers refuse an hour
_TRY_AGAIN = 1.0
_ATTEMPTS = 3  # at one batch that the broker refuses


@dataclass(slots=True)
class TailCounters:
    """What was committed since the start."""

    lines: int = 0
    bytes: int = 0
    unread: int = 0  # how many of the lines were not in the format
    oldest_ms: int | None = None  # the earliest time of a line

    def saw(self, time_ms: int) -> None:
        self.oldest_ms = time_ms if self.oldest_ms is None else min(self.oldest_ms, time_ms)

    def add(self, more: TailCounters) -> None:
        self.lines += more.lines
        self.bytes += more.bytes
        self.unread += more.unread
        if more.oldest_ms is not None:
            self.saw(more.oldest_ms)


def default_name(topic: str, patterns: Sequence[str]) -> str:
    """The same for the same files, machine and topic, so that a restart continues."""
    files = "\n".join(sorted(os.path.abspath(pattern) for pattern in patterns))
    told = f"{socket.gethostname()}\n{files}".encode()
    return f"{topic}-{hashlib.blake2b(told, digest_size=6).hexdigest()}"


@dataclass(slots=True)
class Tail:
    """Follows files, by patterns, into a topic. ``rejects`` is the topic for lines that were not in the
    format, unchanged; None keeps them in the main topic, as JSON with ``raw`` and ``error``. Either way a
    header ``error`` has the reason. A line too long for one record is sent in parts, unchanged and in
    order. ``key`` names the field that is the key."""

    connection: Connection
    patterns: Sequence[str]
    topic: str
    parse: Parse
    clock: Clock
    name: str
    rejects: str | None = None
    key: str | None = None
    blank_lines: bool = False
    from_start: bool = False
    once: bool = False
    complain: Callable[[str], None] = print
    counters: TailCounters = field(default_factory=TailCounters)
    at: str = ""  # the file read last, for showing progress
    _retention_ms: int = -1

    def find_topics(self, *, create: bool) -> None:
        """Check that the topics exist, or ``create`` those that don't. Raises RequestFailed."""
        topics = [self.topic] if self.rejects is None else [self.topic, self.rejects]
        with Admin(self.connection) as admin:
            for topic in topics if create else ():
                admin.create_topic(topic, if_not_exists=True)
            admin.describe_topics(topics)
            kept = {value.name: value.value for value in admin.topic_config(self.topic)}.get("retention.ms")
        self._retention_ms = int(kept or -1)

    def too_short_retention_ms(self) -> int | None:
        """The topic's retention, if lines were sent that are older; they will be deleted soon."""
        oldest_ms = self.counters.oldest_ms
        if oldest_ms is None or not 0 <= self._retention_ms < self.clock.now_ms() - oldest_ms:
            return None
        return self._retention_ms

    def run(self, ended: Callable[[], bool], shown: Callable[[], None] = lambda: None) -> None:
        """Run until ``ended``, or with ``once`` until all is read. Raises if continuing is pointless."""
        progress = TailProgress(self.connection, self.name)
        progress.prepare()
        failures, lines, said = 0, -1, ""
        while True:
            try:
                return self._session(progress, ended, shown)
            except ProducerFenced as error:
                raise MillstreamError(
                    f"another tail named {self.name!r} has taken over; run one of them, or give each a --name"
                    " of its own"
                ) from error
            except (BrokerUnavailable, TransactionAborted) as error:
                failures = failures + 1 if self.counters.lines == lines else 1
                lines = self.counters.lines
                if ended() or (isinstance(error, TransactionAborted) and failures >= _ATTEMPTS):
                    raise
                if said != str(error):
                    self.complain(f"{error}; continuing after what was written")
                said = str(error)
            time.sleep(_TRY_AGAIN)

    def _session(self, progress: TailProgress, ended: Callable[[], bool], shown: Callable[[], None]) -> None:
        with Transactions(self.connection, f"millstream-tail-{self.name}") as transactions:
            begun, known = progress.load()
            follower = FileFollower(
                self.patterns,
                self.clock,
                known,
                begun=begun,
                from_start=self.from_start or self.once,
                once=self.once,
                complain=self.complain,
            )
            try:
                while not ended():
                    fresh = follower.look()
                    reads = follower.read(BATCH_BYTES)
                    if reads or fresh or follower.forgotten or not begun:
                        with transactions.begin() as txn:
                            if not begun:
                                progress.begin(txn)
                            sent = self._send(txn, progress, reads, fresh, follower.forgotten)
                        begun = True
                        follower.forgotten.clear()
                        self.counters.add(sent)
                        shown()
                    if not reads:
                        if self.once and follower.finished:
                            return
                        time.sleep(POLL)
            finally:
                follower.close()

    def _send(
        self,
        txn: Transaction,
        progress: TailProgress,
        reads: Sequence[ReadLines],
        fresh: Sequence[TrackedFile],
        forgotten: Sequence[TrackedFile],
    ) -> TailCounters:
        now_ms = self.clock.now_ms()
        sent = TailCounters()
        for tracked, lines in reads:
            self.at = tracked.place.path
            headers = [("file", self.at.encode("utf-8", "surrogateescape"))]
            for line in lines:
                if line.data or line.piece or self.blank_lines:
                    self._send_line(txn, line, headers, now_ms, sent)
                sent.bytes += len(line.data) + 1
        changed = {tracked.id: tracked for tracked in [*fresh, *(read.tracked for read in reads)]}
        for tracked in changed.values():
            progress.save(txn, tracked)
        for tracked in forgotten:
            progress.forget(txn, tracked)
        return sent

    def _send_line(
        self, txn: Transaction, line: Line, headers: Headers, now_ms: int, sent: TailCounters
    ) -> None:
        sent.lines += 1
        parsed = self._parsed(line)
        if parsed.error is not None:
            sent.unread += 1
            headers = [*headers, ("error", parsed.error.encode())]
            if self.rejects is not None:
                txn.send(self.rejects, line.data, headers=headers, timestamp_ms=now_ms)
                return
        time_ms = parsed.time_ms
        if time_ms is None or not 0 < time_ms <= now_ms + _AHEAD_MS:
            time_ms = now_ms
        sent.saw(time_ms)
        txn.send(self.topic, parsed.value, key=self._key(parsed), headers=headers, timestamp_ms=time_ms)

    def _parsed(self, line: Line) -> Parsed:
        if line.piece:
            return Parsed(line.data, error=f"part {line.piece} of a line that is too long for one record")
        parsed = self.parse(line.data)
        if len(parsed.value) > LONGEST_LINE:
            return Parsed(line.data, error="too long for one record after parsing")
        return parsed

    def _key(self, parsed: Parsed) -> bytes | None:
        if self.key is None or parsed.fields is None:
            return None
        value = parsed.fields.get(self.key)
        if value is None:
            return None
        return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogatepass")
