"""Fetches the records of a range of offsets as Arrow batches: the work of a task of the source.

The next Fetch request is in flight while the last response's records are decoded and handed to Spark.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator

import pyarrow as pa

from millstream.client.errors import is_retriable, refused
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.protocol.link import FetchedPartition, Link
from millstream.client.protocol.unreadable import Unreadable, damaged, unreadable_in
from millstream.client.text.position import TopicPartition
from millstream.core.errors import CorruptBatch, DataLoss, RequestFailed
from millstream.core.kafka_errors import CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from millstream.pipeline.connector.offsets import Span
from millstream.records.columns import arrow
from millstream.records.fetched import next_offset

log = logging.getLogger(__name__)

_WAIT_MS = 500
_LEAST_FETCH = 256 * 1024

TO_GO_ON = "`millstream run --skip-lost`, or option failOnDataLoss=false of Spark's reader"


def lost(partition: TopicPartition, first: int, end: int, why: str) -> DataLoss:
    """The error that says what is missing: the offsets from ``first`` up to, not including, ``end``."""
    return DataLoss(
        f"{partition}: offsets {first} to {end - 1} ({end - first} records) are gone: {why}. They were not"
        " read yet. Retention may be too short for how far this query is behind. To continue with the"
        f" records that are left: {TO_GO_ON}"
    )


def _them(unreadable: Unreadable) -> str:
    return "it" if unreadable.until - unreadable.first == 1 else "them"


class SpanReader:
    """Reads one span. If a broker goes away meanwhile, waits as long as the cluster's patience."""

    def __init__(
        self,
        cluster: Cluster,
        span: Span,
        *,
        names: Collection[str],
        read_committed: bool,
        fetch_bytes: int,
        fail_on_data_loss: bool,
    ) -> None:
        self._cluster = cluster
        self._span = span
        self._names = names
        self._read_committed = read_committed
        self._most = fetch_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._at = span.first
        self._record_bytes = 512.0  # a guess until the first response
        self._deadline = 0.0
        self._asked: Link | None = None  # the connection on which a response is expected

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The span's records, without control batches and aborted transactions."""
        self._renew_deadline()
        try:
            yield from self._batches()
        finally:
            # If the caller gave up halfway, the response in flight must not be taken for another request's.
            if self._asked is not None:
                self._cluster.drop(self._asked)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while self._at < self._span.end:
            answer = self._answer()
            if answer is None:
                continue
            if answer.code:
                self._refused(answer.code)
                continue
            first = self._at
            self._at = next_offset(answer.records, first, self._span.end)
            if self._at == first:
                self._nothing_came(answer)
                continue
            self._renew_deadline()
            self._record_bytes = len(answer.records) / (self._at - first)
            if self._at < self._span.end:
                self._ask_ahead()
            try:
                decoded = self._decoded(answer, first, self._span.end)
            except CorruptBatch as problem:
                unreadable = unreadable_in(answer, self._span.partition, first, problem)
                if unreadable.first > first:
                    yield from self._decoded(answer, first, unreadable.first)
                self._go_on_after(unreadable)
            else:
                yield from decoded

    def _decoded(self, answer: FetchedPartition, first: int, end: int) -> list[pa.RecordBatch]:
        return arrow.decode(answer.records, first=first, end=end, aborted=answer.aborted, names=self._names)

    def _go_on_after(self, unreadable: Unreadable) -> None:
        problem = DataLoss(f"{unreadable}. To continue after {_them(unreadable)}: {TO_GO_ON}")
        if self._fail_on_data_loss:
            raise problem
        log.warning("%s", problem)
        if self._asked is not None:  # asked for what follows, but the rest of this response comes first
            self._cluster.drop(self._asked)
            self._asked = None
        self._at = unreadable.until

    def _renew_deadline(self) -> None:
        self._deadline = time.monotonic() + self._cluster.patience

    def _ask(self) -> None:
        # No more than the rest of the span is likely to need: a short span must not pull megabytes.
        likely = int(1.2 * self._record_bytes * (self._span.end - self._at)) + _LEAST_FETCH
        link = self._cluster.leader(self._span.partition)
        link.send_fetch(
            {self._span.partition: (self._at, min(self._most, likely))},
            wait_ms=_WAIT_MS,
            read_committed=self._read_committed,
        )
        self._asked = link

    def _ask_ahead(self) -> None:
        """Send the next request while there is other work. A failure is noticed when it is sent again."""
        try:
            self._ask()
        except (OSError, RequestFailed):
            self._cluster.close()

    def _answer(self) -> FetchedPartition | None:
        """The response to the request in flight, or to one sent now; None if it must be sent again."""
        if self._asked is None:
            try:
                self._cluster.patiently(f"fetching {self._span.partition}", self._ask)
            except RequestFailed as problem:
                if problem.code != UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._skip(self._span.end, "the topic was deleted")
                return None
        link, self._asked = self._asked, None
        assert link is not None
        try:
            (answer,) = link.receive_fetch()
        except OSError as problem:
            self._cluster.close()
            if time.monotonic() > self._deadline:
                raise self._cluster.connection.unavailable(
                    f"fetching {self._span.partition}: {problem}"
                ) from None
            return None
        return answer

    def _refused(self, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            start = self._cluster.ends([self._span.partition], EARLIEST)[self._span.partition]
            if start > self._at:
                self._skip(min(start, self._span.end), f"the log starts at {start}")
            else:
                end = self._cluster.ends([self._span.partition], LATEST)[self._span.partition]
                self._skip(self._span.end, f"the log ends at {end}: the topic was created again or truncated")
            return
        if code == CORRUPT_MESSAGE:
            self._go_on_after(damaged(self._cluster, self._span.partition, self._at, self._span.end))
            return
        if not is_retriable(code) or time.monotonic() > self._deadline:
            raise refused(code, f"fetching {self._span.partition} from offset {self._at}")
        self._cluster.forget_leader(self._span.partition)
        time.sleep(0.05)

    def _nothing_came(self, answer: FetchedPartition) -> None:
        if time.monotonic() > self._deadline:
            end = answer.last_stable_offset if self._read_committed else answer.high_watermark
            self._skip(self._span.end, f"the log ends at {end}")

    def _skip(self, to: int, why: str) -> None:
        problem = lost(self._span.partition, self._at, to, why)
        if self._fail_on_data_loss:
            raise problem
        log.warning("%s", problem)
        self._at = to
