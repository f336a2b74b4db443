"""What was known to be in a log, and whether it is still there.

A log can end before an offset that it is known to have had: somebody deleted files, a disk came back without
its newest writes, an old copy was restored. If such a log were served, the missing offsets would be given to
other records, and a group that had read past the end would take those for what it expects next. So the
partition stays offline until the files are back, or a person accepts the loss
(``millstream log accept-loss``).

Three things are known, and they are not equally certain:

- The **recovery point**: everything below it was synced. Only a fault takes that away.
- The **start offset** of a log that was trimmed, and the **offsets that groups committed**. These are synced
  where they are written down, but the records below them may have been in the operating system's memory only
  (``acks=1``). They survive a killed process. They do not survive a machine that stopped, and that is what
  ``acks=1`` promises: after such a stop the log goes on after the highest of these offsets, so that no offset
  is given twice, and a line in the broker's log names what is gone.

A commit counts against a log only if it names a leader epoch: the client has read the record before it. An
offset without one may be any number that somebody typed. If the whole directory is missing, any commit shows
that there was one.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from millstream.log.checkpoints import RECOVERY_POINTS

ACCEPTED_LOSSES = "accepted-losses"  # a checkpoint file: how far a person gave up the records of a partition

_ANY_EPOCH = 1 << 30  # no log gets there; a client may commit any number


class HighestCommits(NamedTuple):
    """The highest offset that a group has committed in a partition, and the highest of those whose client
    had read the record before it; each with the group."""

    offset: int = 0
    group: str = ""
    read_offset: int = 0
    read_group: str = ""
    leader_epoch: int = -1  # the newest that a client has named

    def and_one(self, offset: int, leader_epoch: int, group: str) -> HighestCommits:
        found = self
        if offset > found.offset:
            found = found._replace(offset=offset, group=group)
        if leader_epoch >= 0 and offset > found.read_offset:
            found = found._replace(read_offset=offset, read_group=group)
        if found.leader_epoch < leader_epoch < _ANY_EPOCH:
            found = found._replace(leader_epoch=leader_epoch)
        return found


class Known(NamedTuple):
    """What is known of a partition's log besides its files."""

    recovery_point: int = 0
    start_offset: int = 0
    commits: HighestCommits = HighestCommits()
    was_there: bool = False  # a checkpoint names it: the disk had its directory

    @property
    def end_offset(self) -> int:
        """No offset below this is to be given again."""
        return max(self.recovery_point, self.start_offset, self.commits.read_offset)

    def missing(self, end: int | None, *, machine_stopped: bool) -> str:
        """What speaks against a log that ends at ``end``, None for one without a directory; empty if nothing
        does. ``machine_stopped``: what was not synced may be gone."""
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

    def without_directory(self) -> Known:
        """The same of a log whose directory is missing: there was one if anybody ever committed."""
        offset, group = self.commits[:2]
        return self._replace(commits=self.commits._replace(read_offset=offset, read_group=group))


def began_before(epochs: Sequence[tuple[int, int]], first: int, has_archive: bool) -> range | None:
    """The offsets that are missing at the start of a log that was closed in order, whose first segment begins
    at ``first``. A closed log's first epoch begins where the log does. What is older may be in an archive."""
    if not epochs or has_archive or epochs[0][1] >= first:
        return None
    return range(epochs[0][1], first)


def described(name: str, path: str, end: int | None, missing: str, known: Known) -> str:
    """What to tell the person who has to decide."""
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
    """What to tell of a directory whose ``partition.metadata`` names another topic."""
    directory = path.rpartition("/")[0]
    return (
        f"{name} is offline: the directory {path} is that of another topic: its partition.metadata names the "
        f"id {named}, and the catalogue has {wanted}. Stop the broker; put the partition's files back from a "
        "backup, or have this directory set aside and the records given up with "
        f"`millstream log accept-loss {directory} {name}`; start it again"
    )
