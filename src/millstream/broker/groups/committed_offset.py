"""The committed offset of a group in a partition, as it is stored and as a commit asks for it."""

from __future__ import annotations

from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """A group's committed offset in one partition."""

    offset: int
    leader_epoch: int  # -1: the client did not send it
    metadata: str
    commit_ms: int
    expire_ms: int  # -1: the broker's retention of offsets applies


class OffsetToCommit(NamedTuple):
    """One partition's part of an offset commit: its key, then the fields of ``CommittedOffset``."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
