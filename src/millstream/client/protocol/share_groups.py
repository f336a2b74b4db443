"""Where share groups are (KIP-932): asked of a cluster, set, and forgotten.

A share group commits no offsets. It has a start offset in each partition, that of the first record which it
has not finished, and it may have finished some of the records after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from millstream.client.errors import refused
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.link import Link
from millstream.client.text.position import TopicPartition
from millstream.wire.api_keys import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
)

_WITH_LAG = 1  # the version of DescribeShareGroupOffsets with the lag


class ShareOffset(NamedTuple):
    """Where a share group is in a partition. ``unfinished`` counts the records that it has not finished;
    None if the broker does not say."""

    start: int
    unfinished: int | None


ShareOffsets = Mapping[TopicPartition, ShareOffset]


def share_offsets(cluster: Cluster, group: str) -> ShareOffsets:
    """Where a share group has begun to read. Empty for groups of other kinds."""

    def ask() -> ShareOffsets:
        return dict(share_offsets_of(cluster.coordinator(group), [group])).get(group, {})

    return cluster.patiently(f"reading the offsets of share group {group}", ask)


def share_offsets_of(link: Link, groups: Sequence[str]) -> Iterator[tuple[str, ShareOffsets]]:
    """The same for several groups, from their coordinator. Refused ones are left out."""
    version = min(link.newest(DESCRIBE_SHARE_GROUP_OFFSETS), _WITH_LAG)
    if version < 0 or not groups:
        return  # a broker without share groups
    fields = {"groups": [{"group_id": name, "topics": None} for name in groups]}
    for group in link.request(DESCRIBE_SHARE_GROUP_OFFSETS, fields, version).groups:
        if not group.error_code:
            yield (
                str(group.group_id),
                {
                    TopicPartition(str(topic.topic_name), int(entry.partition_index)): ShareOffset(
                        int(entry.start_offset), _known(int(getattr(entry, "lag", -1)))
                    )
                    for topic in group.topics
                    for entry in topic.partitions
                    if entry.start_offset >= 0 and not entry.error_code
                },
            )


def _known(lag: int) -> int | None:
    return lag if lag >= 0 else None


def move_share_group(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Let a share group without members begin elsewhere. What it has finished there is forgotten."""
    topics: dict[str, list[dict[str, int]]] = {}
    for place, offset in offsets.items():
        topics.setdefault(place.topic, []).append(
            {"partition_index": place.partition, "start_offset": offset}
        )
    fields = {
        "group_id": group,
        "topics": [{"topic_name": name, "partitions": entries} for name, entries in topics.items()],
    }

    def ask() -> None:
        what = f"moving share group {group}"
        answer = cluster.coordinator(group).request(ALTER_SHARE_GROUP_OFFSETS, fields, 0)
        if answer.error_code:
            raise refused(int(answer.error_code), what)
        for topic in answer.responses:
            for entry in topic.partitions:
                if entry.error_code:
                    raise refused(int(entry.error_code), f"{what} in {topic.topic_name}")

    if topics:
        cluster.patiently(f"moving share group {group}", ask)


def forget_share_topics(cluster: Cluster, group: str, topics: Collection[str]) -> None:
    """Let a share group without members begin in these topics as in new ones."""
    fields = {"group_id": group, "topics": [{"topic_name": name} for name in topics]}

    def ask() -> None:
        what = f"deleting the offsets of share group {group}"
        answer = cluster.coordinator(group).request(DELETE_SHARE_GROUP_OFFSETS, fields, 0)
        if answer.error_code:
            raise refused(int(answer.error_code), what)
        for topic in answer.responses:
            if topic.error_code:
                raise refused(int(topic.error_code), f"{what} in {topic.topic_name}")

    cluster.patiently(f"deleting the offsets of share group {group}", ask)
