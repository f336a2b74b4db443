"""Where a consumer group stands: a committed offset, and what is asked for when one is committed."""

from __future__ import annotations

from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """Where a group stands in one partition."""

    offset: int
    leader_epoch: int  # -1: the client did not say
    metadata: str
    commit_ms: int
    expire_ms: int  # -1: by the broker's retention of offsets


class OffsetToCommit(NamedTuple):
    """One partition's part of an offset commit: its key, then the fields of ``CommittedOffset``."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
