"""Describe many groups of consumers at once: their members and where they are.

It takes a few requests to each coordinator. librdkafka asks for every group separately, and twice, which is
slow with a thousand groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from millstream.client.connect import Connection
from millstream.client.librdkafka.groups import (
    SHARE,
    GroupInfo,
    GroupListing,
    describe_classic,
    describe_consumer,
    describe_share,
)
from millstream.client.protocol.cluster import Cluster, Committed, commits_in
from millstream.client.protocol.link import Link
from millstream.client.protocol.share_groups import share_offsets_of
from millstream.client.text.position import TopicPartition
from millstream.core.errors import RequestFailed
from millstream.wire.api_keys import (
    OFFSET_FETCH,
)

_AT_ONCE = 200  # groups in a request: other clients' requests wait for at most one of these
_OFFSETS_OF_MANY = 8  # the first version of OffsetFetch for several groups; Kafka has it since 3.0


@dataclass(frozen=True, slots=True)
class SurveyedGroup:
    """A group. The ``commits`` of a share group are its start offsets, and ``unfinished`` says how many
    records it has not finished."""

    info: GroupInfo
    commits: Mapping[TopicPartition, Committed]
    unfinished: Mapping[TopicPartition, int | None] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        """Topics that it has committed offsets for, or that its members read."""
        read = (place for member in self.info.members for place in member.assigned)
        return {place.topic for place in (*self.commits, *read)}


def survey(connection: Connection, listed: Sequence[GroupListing]) -> dict[str, SurveyedGroup]:
    """Describe the groups of a list. Groups that can't be described now are left out: deleted since they
    were listed, moving to another coordinator, not authorised, of another kind, or without a name."""
    cluster = Cluster(connection, patience=connection.patience)
    kinds = {group.name: group.kind for group in listed if group.name}

    def ask() -> dict[str, SurveyedGroup]:
        found = {}
        for link, names in cluster.by_coordinator(kinds).items():
            consumer = [name for name in names if kinds[name] == "consumer"]
            share = [name for name in names if kinds[name] == SHARE]
            classic = [name for name in names if kinds[name] not in ("consumer", SHARE)]
            described = chain(
                *(describe_consumer(link, some) for some in _parts(consumer)),
                *(describe_share(link, some) for some in _parts(share)),
                *(describe_classic(link, some) for some in _parts(classic)),
            )
            infos = {info.name: info for info in described if isinstance(info, GroupInfo)}
            commits = _commits(cluster, link, [*consumer, *classic])
            offsets = dict(chain(*(share_offsets_of(link, some) for some in _parts(share))))
            for name in names:
                if name in infos and name in commits:
                    found[name] = SurveyedGroup(infos[name], commits[name])
                elif name in infos and name in offsets:
                    starts = {place: Committed(at.start) for place, at in offsets[name].items()}
                    unfinished = {place: at.unfinished for place, at in offsets[name].items()}
                    found[name] = SurveyedGroup(infos[name], starts, unfinished)
        return found

    try:
        return cluster.patiently("looking at groups", ask)
    finally:
        cluster.close()


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(names), _AT_ONCE):
        yield names[at : at + _AT_ONCE]


def _commits(
    cluster: Cluster, link: Link, names: Sequence[str]
) -> dict[str, Mapping[TopicPartition, Committed]]:
    found: dict[str, Mapping[TopicPartition, Committed]] = {}
    if link.newest(OFFSET_FETCH) < _OFFSETS_OF_MANY:
        return {name: cluster.commits(name, require_stable=False) for name in names}
    for some in _parts(names):
        fields = {"groups": [{"group_id": name, "topics": None} for name in some], "require_stable": False}
        for group in link.request(OFFSET_FETCH, fields, _OFFSETS_OF_MANY).groups:
            try:
                found[str(group.group_id)] = commits_in(group, group.group_id)
            except RequestFailed:
                continue  # this group only; the others are reported
    return found
