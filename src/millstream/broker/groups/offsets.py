"""Committed offsets of groups: who may commit, read and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.committed_offset import CommittedOffset, OffsetToCommit
from millstream.broker.groups.directory import GroupDirectory
from millstream.core.clock import Clock
from millstream.core.errors import CatalogueFailed
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    NONE,
)


class GroupOffsets:
    def __init__(self, catalogue: Catalogue, directory: GroupDirectory, clock: Clock) -> None:
        self._catalogue = catalogue
        self._directory = directory
        self._clock = clock

    def of(self, name: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """A group's committed offsets, by topic and partition."""
        return self._catalogue.offsets_of(name)

    def check_commit(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        transactional: bool = False,
        by_epoch: bool = False,
    ) -> int:
        """NONE if this member may commit offsets, now or with its transaction; else an error code.

        ``by_epoch``: the client knows the consumer protocol and the error for a group that does not
        exist. Other clients send their generation as the epoch.
        """
        if transactional and not name:
            return INVALID_GROUP_ID
        group = self._directory.find(name)
        if group is None:
            if epoch >= 0:
                return GROUP_ID_NOT_FOUND if by_epoch else ILLEGAL_GENERATION
            group = self._directory.create(name)  # a consumer without group management, or an administrator
        return group.check_commit(
            member_id,
            instance_id,
            epoch,
            self._clock.monotonic(),
            transactional=transactional,
            by_epoch=by_epoch,
        )

    def check_partition(self, name: str, member_id: str, epoch: int, topic: str, partition: int) -> int:
        """NONE if a commit that ``check_commit`` allowed may include this partition; else an error code."""
        group = self._directory.get(name)
        known = self._catalogue.topics.get(topic)
        if group is None or known is None:
            return NONE
        return group.check_partition(member_id, epoch, (known.id.bytes, partition))

    def check_fetch(self, name: str, member_id: str | None, epoch: int) -> int:
        """NONE if this member may read the group's offsets; else an error code."""
        group = self._directory.get(name)
        return NONE if group is None else group.check_fetch(member_id, epoch)

    async def commit(self, name: str, commits: Iterable[OffsetToCommit]) -> int:
        """Write offsets to the catalogue. Returns an error code."""
        try:
            await self._catalogue.commit_offsets(name, commits)
        except CatalogueFailed:
            return COORDINATOR_NOT_AVAILABLE  # clients retry
        return NONE

    async def delete(self, name: str, partitions: Iterable[tuple[str, int]]) -> tuple[int, Mapping[str, int]]:
        """Delete offsets. Returns an error code for all, and one for each topic that must not be touched."""
        group = self._directory.find(name)
        if group is None:
            return GROUP_ID_NOT_FOUND, {}
        if error := group.check_offset_delete():
            return error, {}
        subscribed = group.subscribed_topics()
        free, in_use = [], set()
        for topic, index in partitions:
            if subscribed is None or topic in subscribed:
                in_use.add(topic)
            else:
                free.append((topic, index))
        try:
            await self._catalogue.delete_offsets(name, free)
        except CatalogueFailed:
            error = COORDINATOR_NOT_AVAILABLE
        return error, dict.fromkeys(in_use, GROUP_SUBSCRIBED_TO_TOPIC)
