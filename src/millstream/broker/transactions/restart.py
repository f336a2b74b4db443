"""Restart: settle the transactions that the last process left, before any client is served.

1. A marker that is still owed is written only if the transaction that it ends is still open in its partition.
   The transaction is identified by its first offset. The rows of all other owed markers are deleted
   immediately, because a new transaction could soon begin at the same offset.
2. A transaction that is open in a log continues if a transactional id still has its producer.
3. Any other open transaction is aborted, because no producer is left that could end it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from millstream.broker.topics.partition import AppendTurn, LocalTopic
from millstream.broker.transactions.decisions import OwedMarker, TransactionDecisions
from millstream.broker.transactions.markers import Markers
from millstream.broker.transactions.transaction import ProducerIdentity
from millstream.broker.transactions.transactional_ids import TransactionalId, TransactionalIds
from millstream.wire.frame import TopicKey

_log = logging.getLogger(__name__)


def resume_transactions(
    ids: TransactionalIds,
    decisions: TransactionDecisions,
    markers: Markers,
    hosted: Mapping[TopicKey, LocalTopic],
    turn: AppendTurn,
) -> None:
    """Settle all transactions; see the module's description."""
    for state, added in decisions.states():
        ids.add(state, added)
    _write_owed(ids, decisions, markers)
    turn.write()
    orphans = _adopt_open(ids, markers, hosted)
    for found in ids:
        for topic_id, index in found.added.partitions:
            topic = hosted.get(topic_id)
            if topic is not None and index < len(topic.partitions):
                found.logs[topic.partitions[index].log] = None
        ids.set_state(found, found.current)
    if orphans:
        _log.warning(
            "%d transactions are open in the logs, but belong to no transactional id; they are aborted",
            len(orphans),
        )
        markers.write(orphans, is_recorded=False)
        turn.write()
    going_on = len(list(ids.open()))
    if going_on:
        _log.info("%d transactions are open and continue", going_on)


def _write_owed(ids: TransactionalIds, decisions: TransactionDecisions, markers: Markers) -> None:
    owed: dict[str, list[OwedMarker]] = {}
    stale = []
    for marker in decisions.owed_markers():
        if markers.is_due(marker):
            owed.setdefault(marker.transaction, []).append(marker)
        else:
            stale.append(marker)
    decisions.forget_owed_now(stale)
    for found in ids:
        if found.current.is_decided:
            _finish(ids, markers, found, owed.pop(found.name, []))
    for of_others in owed.values():
        markers.write(of_others)


def _finish(
    ids: TransactionalIds, markers: Markers, found: TransactionalId, owed: Sequence[OwedMarker]
) -> None:
    markers.write(owed, complete=lambda: ids.set_state(found, found.current.completed()))


def _adopt_open(
    ids: TransactionalIds, markers: Markers, hosted: Mapping[TopicKey, LocalTopic]
) -> list[OwedMarker]:
    """Assign the transactions that are open in the logs to their transactional ids. Returns the markers that
    abort those of no id."""
    writers = {found.current.writer: found for found in ids if not found.current.is_decided}
    orphans = []
    for key, topic in hosted.items():
        if not isinstance(key, bytes):
            continue  # each topic is in the mapping under its name, too
        for partition in topic.partitions:
            for producer_id, open_there in partition.log.open_transactions().items():
                if markers.holds(topic.id_bytes, partition.index, producer_id):
                    continue
                found = writers.get(ProducerIdentity(producer_id, open_there.epoch))
                if found is None:
                    first_offset, epoch = open_there.first_offset, open_there.epoch
                    orphans.append(
                        OwedMarker(key, partition.index, producer_id, first_offset, epoch, False, "")
                    )
                    continue
                found.logs[partition.log] = None
                if not found.current.is_open:
                    found.state = found.current.begin(open_there.started_ms)
    return orphans
