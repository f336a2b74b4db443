"""Moves a consumer group, and deletes it or its offsets, each with a preview of the consequences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from millstream.client.insight.reset import (
    OffsetMove,
    carry_out,
    planned,
    refuse_to_move,
    refuse_while_active,
    with_times,
)
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.groups import SHARE
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import parse_position
from millstream.console.observing.snapshot import GroupState
from millstream.core.clock import Clock
from millstream.core.errors import ConfigError, RequestFailed
from millstream.jobs.owners import JobRuns, Owner

Target = Literal["start", "end", "offset", "shift", "time"]
MOST_PARTITIONS = 100_000
_LONGEST = 64
_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True, slots=True)
class Choice:
    """Where to move a group. ``to`` is ``start``, ``end``, an ``offset``, a ``shift`` by a number of records
    (-100, 100), or a ``time``: an age such as 1h, a date and time (UTC unless it names its zone), or ms since
    1970. It applies to one ``topic``, or to all that the group has committed, and there to ``partitions``
    (0,2-4), or to all.
    """

    to: Target
    value: str = ""
    topic: str = ""
    partitions: str = ""


@dataclass(frozen=True, slots=True)
class MovedPartition:
    """A partition that is moved. ``old`` is null where the group has committed nothing. ``first_ms`` and
    ``last_ms`` are the times of the first and the last record that is read again or skipped.
    """

    topic: str
    partition: int
    old: int | None
    new: int
    read_again: int
    skipped: int
    unread: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class Reset:
    """What moving a group means. ``refused`` says why it can't be done now, and is empty if it can.
    ``pipeline`` is the job that keeps in these offsets which of its batches are done: after the move, the
    job starts only with ``--new-ledger``.
    """

    group: str
    partitions: list[MovedPartition]
    read_again: int
    skipped: int
    unread: int
    refused: str
    pipeline: str | None


def preview(admin: Admin, group: str, choice: Choice, clock: Clock, owner: Owner | None) -> Reset:
    """What would be moved; changes nothing. Raises if the choice is not valid."""
    refused = "" if owner is None else owner.refused
    try:
        refuse_to_move(admin, group, new=False)
    except RequestFailed as error:
        if error.name != "NON_EMPTY_GROUP":
            raise
        refused = str(error)
    moves = with_times(admin, _moves(admin, group, choice, clock))
    return _reset(group, moves, refused, owner)


def reset(admin: Admin, group: str, choice: Choice, clock: Clock, owner: Owner | None) -> Reset:
    """Move a group. Raises while it has members, or is the ledger of a running job."""
    _refuse_under(owner)
    refuse_to_move(admin, group, new=False)
    moves = _moves(admin, group, choice, clock)
    carry_out(admin, group, moves)
    return _reset(group, moves, "", owner)


def _refuse_under(owner: Owner | None) -> None:
    if owner is not None and owner.refused:
        raise JobRuns(owner.refused)


def _moves(admin: Admin, group: str, choice: Choice, clock: Clock) -> list[OffsetMove]:
    position = parse_position(position_text(choice), clock.now_ms())
    if choice.topic and choice.topic not in admin.topics():
        raise admin.unknown_topic(choice.topic)
    topics = [choice.topic] if choice.topic else []
    return planned(admin, group, position, topics, parse_partitions(choice.partitions))


def _reset(group: str, moves: list[OffsetMove], refused: str, owner: Owner | None) -> Reset:
    return Reset(
        group,
        [
            MovedPartition(
                move.partition.topic,
                move.partition.partition,
                move.old,
                move.new,
                move.read_again,
                move.skipped,
                move.unread,
                move.first_ms,
                move.last_ms,
            )
            for move in moves
        ],
        sum(move.read_again for move in moves),
        sum(move.skipped for move in moves),
        sum(move.unread for move in moves),
        refused,
        None if owner is None else owner.job,
    )


def position_text(choice: Choice) -> str:
    """The choice in the syntax of the command line: ``start``, ``47``, ``+5``, ``@-1h``."""
    value = choice.value.strip()
    if len(value) > _LONGEST:
        raise ConfigError(f"{value[:20]}… is longer than any offset or time")
    match choice.to:
        case "offset":
            if not value.isdigit():
                raise ConfigError(f"{value!r} is not an offset; write a whole number, as 47")
            return value
        case "shift":
            if not re.fullmatch(r"[+-]?\d+", value):
                raise ConfigError(
                    f"{value!r} is not a number of records; write 100 to go forward, or -100 to go back"
                )
            return value if value[0] in "+-" else f"+{value}"
        case "time":
            # An age may be written without its sign: nobody moves a group to an hour from now.
            is_age = re.fullmatch(r"(\d+(\.\d+)?(ms|[wdhms]))+", value)
            return f"@-{value}" if is_age else f"@{value}"
        case _:
            return choice.to


def parse_partitions(text: str) -> list[int]:
    """Partition numbers written as ``0,2-4``. Empty means all."""
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        run = _RUN.fullmatch(part)
        if run is None:
            raise ConfigError(f"{part!r} is not a partition; write partitions as 0,2-4")
        first, last = int(run[1]), int(run[2] or run[1])
        if last < first or len(found) + last - first > MOST_PARTITIONS:
            raise ConfigError(f"{part!r} is not a range of partitions; write partitions as 0,2-4")
        found.extend(range(first, last + 1))
    return found


# Deleting --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is lost by deleting a group, or its offsets for a topic. A consumer that comes back begins where
    its ``auto.offset.reset`` says: at the start, it reads ``read_again`` records again; at the end, it skips
    ``skipped`` records that it has not read. ``refused`` and ``pipeline`` are as in ``Reset``.
    """

    group: str
    topic: str
    offsets: int
    topics: list[str]
    read_again: int
    skipped: int
    refused: str
    pipeline: str | None


def deletion(group: GroupState, topic: str = "", owner: Owner | None = None) -> Deletion:
    """What would be lost; changes nothing."""
    parts = [
        part for part in group.partitions if part.committed is not None and (not topic or part.topic == topic)
    ]
    members = () if group.info is None else group.info.members
    if topic:
        members = tuple(m for m in members if any(place.topic == topic for place in m.assigned))
    who = ", ".join(sorted({f"{member.client} at {member.host}" for member in members})[:3])
    return Deletion(
        group.name,
        topic,
        len(parts),
        sorted({part.topic for part in parts}),
        sum(max(0, min(part.committed or 0, part.end) - part.start) for part in parts),
        sum(part.lag or 0 for part in parts),
        f"it has members, {len(members)} active: {who}. Stop them first."
        if members
        else f"{owner.refused}."
        if owner is not None and owner.refused
        else "",
        None if owner is None else owner.job,
    )


def delete(admin: Admin, group: str, owner: Owner | None) -> None:
    """Delete a group with all its offsets. Raises while it has members, or is the ledger of a running job."""
    _refuse_under(owner)
    refuse_while_active(admin, group, "a group in use is not deleted")
    error = admin.delete_groups([group])[group]
    if error is not None:
        raise error


def forget_topic(admin: Admin, group: str, topic: str, owner: Owner | None) -> None:
    """Delete all offsets of a group for one topic. Raises while members read the topic, or while the group
    is the ledger of a running job.
    """
    _refuse_under(owner)
    if admin.group(group).kind == SHARE:
        refuse_while_active(admin, group, "a share group forgets a topic only while it has none")
        admin.forget_share_topic(group, topic)
        return
    places = [place for place in admin.committed(group) if place.topic == topic]
    if not places:
        raise RequestFailed(
            3, "UNKNOWN_TOPIC_OR_PART", f"{group} has committed no offsets of a topic {topic!r}"
        )
    cluster = Cluster(admin.connection, patience=admin.connection.patience)
    try:
        cluster.forget(group, places)
    except RequestFailed as error:
        if error.name != "GROUP_SUBSCRIBED_TO_TOPIC":
            raise
        reason = f"members of {group} read {topic}; stop them first: they would commit its offsets again"
        raise RequestFailed(error.code, error.name, reason) from None
    finally:
        cluster.close()
