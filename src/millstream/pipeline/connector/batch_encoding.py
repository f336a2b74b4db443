"""Encodes rows of Arrow record batches as Kafka's record batches, and chooses the partition of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.core.errors import ConfigError
from millstream.pipeline.connector.options import WriteOptions
from millstream.records.columns import arrow

# Rows without a key go to one partition this many at a time, so that batches stay large.
_KEYLESS_RUN = 1000

Columns = Mapping[str, pa.Array]


class EncodedBatch(NamedTuple):
    """A Kafka record batch for one partition."""

    partition: int
    data: bytearray
    rows: int


class Partitioner:
    """Chooses partitions as every Kafka client does: by the key, or by turns where there is no key. A
    column `partition` overrides both. ``turn`` is the partition where rows without a key begin."""

    def __init__(self, turn: int) -> None:
        self._turn = turn

    def choose(self, topic: str, count: int, columns: Columns) -> Any:
        """The partition of every row, as a numpy array."""
        rows = len(columns["value"])
        key = columns.get("key")
        found = np.full(rows, -1, np.int32) if key is None else arrow.partitions_of(key, count)
        keyless = np.flatnonzero(found < 0)
        if len(keyless):
            found[keyless] = (self._turn + np.arange(len(keyless)) // _KEYLESS_RUN) % count
            self._turn = (self._turn + 1 + len(keyless) // _KEYLESS_RUN) % count
        chosen = columns.get("partition")
        if chosen is not None:
            given = chosen.fill_null(-1).to_numpy(zero_copy_only=False)
            mask = chosen.is_valid().to_numpy(zero_copy_only=False)
            wrong = mask & ((given < 0) | (given >= count))
            if wrong.any():
                raise ConfigError(
                    f"column `partition` says {given[wrong][0]}, but topic {topic} has {count} partitions"
                )
            found = np.where(mask, given, found).astype(np.int32)
        return found


def interleaved_batches(
    columns: Columns, partitions: Any, options: WriteOptions, *, transactional: bool = False
) -> Iterator[list[EncodedBatch]]:
    """Yields the rows as batches: one of every partition, then the next one of each, so that a request
    carries as many as it can. Rows of one partition keep their order."""
    if not len(partitions):
        return
    encoder = arrow.Encoder(
        columns["value"], columns.get("key"), columns.get("headers"), columns.get("timestamp")
    )
    order = np.argsort(partitions, kind="stable").astype(np.int32)
    numbers, starts = np.unique(partitions[order], return_index=True)
    producer = arrow.ProducerSequence(transactional=transactional)  # the sender fills in the rest
    parts = [
        (
            int(number),
            encoder.batches(rows, max_bytes=options.batch_bytes, codec=options.codec, producer=producer),
        )
        for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True)
    ]
    while parts:
        ready, going_on = [], []
        for partition, batches in parts:
            found = next(batches, None)
            if found is not None:
                ready.append(EncodedBatch(partition, *found))
                going_on.append((partition, batches))
        if ready:
            yield ready
        parts = going_on
