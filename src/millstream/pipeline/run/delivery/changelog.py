"""Writes a view's changes to a topic: a client that reads the topic to its end has the view.

    key      the view's key as a JSON object
    value    the row as it is now, as a JSON object; null where the key is gone

The topic is compacted, so it is never much longer than the view. The records are changes of the view, not the
rows that arrived: an older row that the view leaves out is not written, and of several rows of one key in one
batch only the last is.

The changes are known once the batch is merged into the view, but the view must not be committed before the
log is (delivery.py says why). So the database's transaction is kept open while the records are sent and, with
exactly-once, while the log's transaction with the rest of the batch is committed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.sender import BatchSender
from millstream.client.protocol.transaction_requests import ProducerSession
from millstream.client.text.position import TopicPartition
from millstream.pipeline.connector.batch_encoding import Partitioner, interleaved_batches
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.dsl.graph import ViewSink
from millstream.pipeline.planning.plan import Query
from millstream.views.values import NESTED, decimal_text, digits_of, float_text, is_number
from millstream.views.views import AppliedBatch, View


def changelogs_of(query: Query) -> dict[str, str]:
    """The changelog topics of a query's views, by view; views without one are left out."""
    sinks = [sink for sink in query.sinks if isinstance(sink, ViewSink)]
    return {sink.name: sink.changelog for sink in sinks if sink.changelog is not None}


class Changelogs:
    """The changelogs of a query's views; ``topics`` are by view. Only the driver writes them: in a
    transaction a partition has one sender, and tasks send only to the topics of other sinks."""

    def __init__(
        self, topics: Mapping[str, str], views: Iterable[View], cluster: Cluster, options: WriteOptions
    ) -> None:
        self.topics = dict(topics)
        self._views = {view.name: view for view in views}
        self._cluster = cluster
        self._options = options
        self._sender: BatchSender | None = None

    def send(self, applied: AppliedBatch | None, producer: ProducerSession | None) -> dict[str, int]:
        """Write the changes, in the transaction of ``producer`` if there is one. Returns the number of
        records by topic once the broker has them."""
        sent = {}
        batches = []
        for view, changed in ({} if applied is None else applied.changed).items():
            assert applied is not None
            topic = self.topics[view]
            keys, values = zip(*records_of(applied, self._views[view]), strict=True)
            columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            count = self._cluster.partitions_of(topic, create=True)
            partitions = Partitioner(0).choose(topic, count, columns)
            batches += [
                [(TopicPartition(topic, batch.partition), batch.data) for batch in ready]
                for ready in interleaved_batches(
                    columns, partitions, self._options, transactional=producer is not None
                )
            ]
            sent[topic] = len(changed)
        if batches:
            sender = self._sender_for(producer)
            try:
                for batch in batches:
                    sender.send(batch)
                sender.flush()
            except BaseException:
                sender.close()  # drops what is in flight
                self._sender = None
                raise
        return sent

    def _sender_for(self, producer: ProducerSession | None) -> BatchSender:
        timeout_ms = round(1000 * self._options.connection.patience)
        if producer is not None:
            return BatchSender(self._cluster, timeout_ms=timeout_ms, producer=producer)
        if self._sender is None:
            self._sender = BatchSender(self._cluster, timeout_ms=timeout_ms)
        return self._sender


def records_of(applied: AppliedBatch, view: View) -> list[tuple[bytes, bytes | None]]:
    """The keys and values of the records that describe the changes of a view."""
    kinds, names = dict(view.columns), applied.columns[view.name]
    return [
        (
            json_object(dict(zip(view.key, key, strict=True)), kinds),
            None if row is None else json_object(dict(zip(names, row, strict=True)), kinds),
        )
        for key, row in applied.changed[view.name]
    ]


def json_object(row: Mapping[str, Any], kinds: Mapping[str, str]) -> bytes:
    """A row in JSON, as readers of views get it. ``kinds`` are Spark's types of its columns."""
    plain = {name: _plain(value, kinds.get(name, "")) for name, value in row.items()}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)  # SQLite stores booleans as numbers
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return float_text(value)
    if isinstance(value, str) and kind.startswith(NESTED):
        return json.loads(value)
    if kind.startswith("decimal"):
        if not is_number(kind):
            return decimal_text(kind)(value)
        return float(value) if digits_of(kind)[1] else int(value)
    return value
