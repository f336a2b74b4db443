"""Decides from what is known about a log whether too much of it is missing to serve it.

A log can end before an offset that it is known to have had: files were deleted, a disk came back without
its newest writes, an old copy was restored. If such a log were served, the missing offsets would be
assigned to other records, and a group that had read past the end would take those for the records it
expects next. So the partition stays offline until the files are back, or a person accepts the loss
(``millstream log accept-loss``).

Three things are known, and they are not equally certain:

- The **recovery point**: everything below it was synced. Only a fault can lose that.
- The **start offset** of a trimmed log, and the **offsets that groups committed**. They are synced where
  they are stored, but the records below them may have been only in the operating system's memory
  (``acks=1``). Those records survive a killed process. They do not survive a machine that stopped, and
  ``acks=1`` promises no more. After such a stop, the log continues after the highest of these offsets, so
  that no offset is assigned twice, and the broker's log names what is gone.

A commit counts against a log only if it names a leader epoch: then the client has read the record before
it. An offset without an epoch may be any number that a person typed. If the whole directory is missing,
any commit shows that there was one.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from millstream.log.storage.checkpoints import RECOVERY_POINTS

ACCEPTED_LOSSES = "accepted-losses"  # a checkpoint: where the accepted loss of each partition ends

_ANY_EPOCH = 1 << 30  # no log reaches this epoch; a client may commit any number


class HighestCommits(NamedTuple):
    """The highest offset that a group has committed in a partition, and the highest one whose client had
    read the record before it; each with the group."""

    offset: int = 0
    group: str = ""
    read_offset: int = 0
    read_group: str = ""
    leader_epoch: int = -1  # the newest epoch that a client has named

    def and_one(self, offset: int, leader_epoch: int, group: str) -> HighestCommits:
        found = self
        if offset > found.offset:
            found = found._replace(offset=offset, group=group)
        if leader_epoch >= 0 and offset > found.read_offset:
            found = found._replace(read_offset=offset, read_group=group)
        if found.leader_epoch < leader_epoch < _ANY_EPOCH:
            found = found._replace(leader_epoch=leader_epoch)
        return found


class LogFacts(NamedTuple):
    """What is known of a partition's log apart from its files."""

    recovery_point: int = 0
    start_offset: int = 0
    commits: HighestCommits = HighestCommits()
    was_there: bool = False  # a checkpoint names it, so the disk had its directory

    @property
    def end_offset(self) -> int:
        """No offset below this may be assigned again."""
        return max(self.recovery_point, self.start_offset, self.commits.read_offset)

    def missing(self, end: int | None, *, machine_stopped: bool) -> str:
        """Why a log that ends at ``end`` is too short; empty if it is not. ``end`` is None for a missing
        directory. ``machine_stopped``: what was not synced may be gone."""
        reached = end or 0
        reasons = []
        if self.recovery_point > reached:
            reasons.append(f"it was synced up to offset {self.recovery_point}")
        elif end is None and self.was_there:
            reasons.append(f"{RECOVERY_POINTS} names it")
        if not machine_stopped:
            if self.start_offset > reached:
                reasons.append(f"it was trimmed up to offset {self.start_offset}")
            if self.commits.read_offset > reached:
                reasons.append(f"group {self.commits.read_group} committed offset {self.commits.read_offset}")
        return ", and ".join(reasons)

    def without_directory(self) -> LogFacts:
        """The same for a log whose directory is missing. There was one if any group ever committed."""
        offset, group = self.commits[:2]
        return self._replace(commits=self.commits._replace(read_offset=offset, read_group=group))


def began_before(epochs: Sequence[tuple[int, int]], first: int, has_archive: bool) -> range | None:
    """The offsets that are missing at the start of a log that was closed cleanly, whose first segment begins
    at ``first``. A closed log's first epoch begins where the log does. Older records may be in an archive."""
    if not epochs or has_archive or epochs[0][1] >= first:
        return None
    return range(epochs[0][1], first)


def described(name: str, path: str, end: int | None, missing: str, known: LogFacts) -> str:
    """The message for the person who has to decide."""
    directory = path.rpartition("/")[0]
    if end is None:
        found = f"the directory {path} is missing"
    else:
        found = f"the log ends at offset {end}, and offsets {end} to {known.end_offset - 1} are missing"
    return (
        f"{name} is offline: {found}, but {missing}. Stop the broker; put the partition's files back from a "
        f"backup, or give the records up with `millstream log accept-loss {directory} {name}`; start it again"
    )


def of_another_topic(name: str, path: str, named: uuid.UUID, wanted: uuid.UUID) -> str:
    """The message for a directory whose ``partition.metadata`` names another topic."""
    directory = path.rpartition("/")[0]
    return (
        f"{name} is offline: the directory {path} is that of another topic: its partition.metadata names the "
        f"id {named}, and the catalogue has {wanted}. Stop the broker; put the partition's files back from a "
        "backup, or have this directory set aside and the records given up with "
        f"`millstream log accept-loss {directory} {name}`; start it again"
    )
