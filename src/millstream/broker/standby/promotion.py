"""Promotion: the rules for when a standby may replace its leader, and the steps that make it the leader.

Rules:

1. A copy that never had a complete point has nothing to lead with. Not even force promotes it.
2. Promotion is refused while the leader answers. Two leaders would each take records that the other lacks.
3. It is refused while records are known that this copy lacks (``broker.standby.lag_account``): the leader
   announced them before it was lost. Status and metrics show the same account.
4. It is refused if the leader was connected when the standby was stopped: it may have taken any number of
   records since.
5. With force, the verdict lists exactly what may be lost. A leader that answers is then fenced first: it
   takes no more writes, this copy gets the rest, and nothing is lost.
6. A connected standby hears of every record within moments. What the leader did after its latest report can't
   be known here. It is reported as unknown, with the time of that report, and is no reason to refuse. Only a
   leader that was fenced or shut down cleanly announces that nothing more follows.

The steps: go back to the last complete point, which is a state that the leader could have left by a crash.
Begin an epoch above all known ones in every log, and add a new name to the lineage, so that a broker that
returns from before the promotion can tell where the logs differ. Skip producer ids far beyond all that the
leader may have given out.
"""

from __future__ import annotations

import json
import logging
import socket
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.copy_state import (
    FENCED,
    WHOLE,
    CopyState,
    forget_state,
    load_state,
    save_facts,
)
from millstream.broker.catalogue.database import (
    FILE_NAME,
    PRODUCER_IDS_SKIPPED,
    CatalogueDatabase,
    fact,
    set_fact,
)
from millstream.broker.standby.lag_account import MissingRecords
from millstream.broker.topics.partition import Partition
from millstream.core.errors import DataDirectoryError
from millstream.log.directory import LogDirectory, take_lock
from millstream.log.storage.files import OsFiles

_log = logging.getLogger(__name__)

_SHOWN = 20
_THREADS = 8


class StandbyState(NamedTuple):
    """The state of a copy relative to its leader, from which ``judge`` decides."""

    leader: str
    whole: (
        Sequence[int] | None
    )  # the last complete point: when taken by the leader's clock, when reached by ours
    answers: bool  # the leader answers now
    heard_ms: int | None  # when the leader was last heard from, by our clock; None: unknown
    was_connected: bool  # the standby is not running, and was connected when it was stopped
    missing: Sequence[MissingRecords]
    behind_commits: int  # changes of the catalogue (offsets, topics, transactions) announced, not yet here
    is_last: bool = (
        False  # nothing follows the last complete point: the leader announced that it takes no more
    )


class PromotionVerdict(NamedTuple):
    allowed: bool
    reasons: Sequence[str]  # why it is refused, or what is given up
    lost: Sequence[MissingRecords]
    note: str = ""  # what is known, and up to what time


def judge(state: StandbyState, *, force: bool) -> PromotionVerdict:
    """Decide whether the copy may be promoted. A pure function."""
    if state.whole is None:
        return PromotionVerdict(
            False, ["it has no complete copy of its leader yet: it has nothing to lead with"], ()
        )
    reasons = []
    if state.answers:
        reasons.append(f"the leader at {state.leader} answers: stop it first, or two brokers lead")
    if state.missing:
        count = sum(each.records for each in state.missing)
        reasons.append(
            f"{count} records that the leader had are not here: {_listed(state.missing)}; they were "
            f"written after {_time(state.whole[0])}"
        )
    if state.behind_commits:
        reasons.append(
            f"changes of topics, groups' offsets or transactions that the leader made after "
            f"{_time(state.whole[0])} are not here: {state.behind_commits} or more"
        )
    if state.was_connected and not state.is_last:
        assert state.heard_ms is not None
        reasons.append(
            f"this standby was stopped at {_time(state.heard_ms)}, while the leader was running; records "
            "that the leader took after that are not here"
        )
    if state.heard_ms is None:
        reasons.append(
            "the standby was not shut down cleanly, so what it had heard of but not copied is not known; "
            f"what the leader had at {_time(state.whole[0])} is here"
        )
    return PromotionVerdict(force or not reasons, reasons, state.missing, _known(state))


def _known(state: StandbyState) -> str:
    """What is known, and up to what time."""
    assert state.whole is not None
    if state.is_last:
        return f"the leader shut down cleanly at {_time(state.whole[0])}, and everything it had is here"
    if state.heard_ms is None:
        return ""
    return (
        f"what the leader had at {_time(state.whole[0])} is here; it was last heard from at "
        f"{_time(state.heard_ms)}, and what it acknowledged after that is unknown"
    )


def _listed(missing: Sequence[MissingRecords]) -> str:
    shown = ", ".join(map(str, missing[:_SHOWN]))
    return shown + (f" and {len(missing) - _SHOWN} partitions more" if len(missing) > _SHOWN else "")


def _time(ms: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")


def state_when_stopped(copy: CopyState) -> StandbyState:
    """The state of a standby that is not running, as it was saved when the standby was stopped."""
    left = copy.facts.get("left")
    whole = copy.facts.get(WHOLE)
    if left is None:
        return StandbyState(copy.leader, whole, False, None, False, (), 0)
    return StandbyState(
        copy.leader,
        whole,
        False,
        left["heard_ms"],
        left["was_connected"],
        [MissingRecords(*each) for each in left["missing"]],
        left["behind_commits"],
        left["is_last"],
    )


def promote_directory(path: Path, *, force: bool) -> PromotionVerdict:
    """Judge the copy in a directory that no broker is using, and mark it as promoted if it may lead.
    Raises DataDirectoryError."""
    if not (path / FILE_NAME).exists():
        raise DataDirectoryError(f"{path} is not the data directory of a broker: it has no {FILE_NAME}")
    unlock = take_lock(OsFiles(), str(path))
    try:
        database = CatalogueDatabase(path / FILE_NAME)
        try:
            copy = database.read_now(load_state)
            verdict = _judge_directory(path, copy, force)
            if verdict.allowed:
                database.change_now(lambda db: save_facts(db, promoted=True))
        finally:
            database.close()
    finally:
        unlock()
    return verdict


def _judge_directory(path: Path, copy: CopyState, force: bool) -> PromotionVerdict:
    if copy.is_promoted:
        return PromotionVerdict(True, ["it was promoted before"], ())
    if copy.leader:
        state = state_when_stopped(copy)
        return judge(state._replace(answers=_answers(copy.leader)), force=force)
    if FENCED in copy.facts:
        by = copy.facts[FENCED]
        return PromotionVerdict(
            force, [f"the broker at {by} was promoted in its place and takes records"], ()
        )
    raise DataDirectoryError(
        f"{path} is no standby's copy; `millstream serve --data {path}` makes it a leader"
    )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2.0).close()
    except OSError:
        return False
    return True


def succeed(
    state: CopyState, catalogue: Catalogue, directory: LogDirectory, partitions: Iterable[Partition]
) -> None:
    """Turn a promoted copy into a leader, before anything is served. Doing it twice does no harm."""
    partitions = [p for p in partitions if not p.in_memory and p.log.offline is None]
    for partition in partitions if state.leader else ():
        end = max(
            state.ends.get((partition.topic.id_bytes, partition.index), 0), partition.log.log_start_offset
        )
        if partition.log.end_offset > end:
            count = partition.log.end_offset - end
            partition.log, aside = directory.cut_log(partition.log, end)
            _log.warning(
                "%s: %d records from offset %d on belong to an incomplete point; they are kept in %s",
                partition, count, end, aside,
            )  # fmt: skip
    epoch = max((partition.log.epochs.latest for partition in partitions), default=0)
    epoch = max(epoch, *(promotion.epoch for promotion in catalogue.lineage)) + 1

    def begin(partition: Partition) -> None:
        log = partition.log
        log.epochs.begin(epoch, log.end_offset)
        log.epochs.write(sync=True)
        log.leader_epoch = epoch

    with ThreadPoolExecutor(_THREADS, "millstream-promote") as threads:
        list(threads.map(begin, partitions))
    directory.checkpoint()  # the copy's checkpoints may name offsets of the leader that this log never had
    lineage = [*catalogue.promotions, (uuid.uuid4().hex, epoch)]

    def write(db: sqlite3.Connection) -> None:
        set_fact(db, "promotions", json.dumps(lineage))
        next_id = int(fact(db, "producer.ids.next") or 0)
        set_fact(db, "producer.ids.next", str(next_id + PRODUCER_IDS_SKIPPED))
        forget_state(db)

    catalogue.change_now(write)
    _log.warning("promoted: this broker leads, in epoch %d; %s led before", epoch, state.leader or "it")


def described(verdict: PromotionVerdict) -> dict[str, Any]:
    """A verdict as the fields of a message."""
    return {
        "allowed": verdict.allowed,
        "note": verdict.note,
        "reasons": list(verdict.reasons),
        "lost": [list(m) for m in verdict.lost],
    }
