"""Describe many consumer groups at once: their members and what they have committed.

It takes a few requests to each coordinator. librdkafka asks for every group separately, and twice, which is
slow with a thousand groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from millstream.client.connect import Connection
from millstream.client.librdkafka.groups import GroupInfo, GroupListing, describe_classic, describe_consumer
from millstream.client.protocol.cluster import Cluster, Committed, commits_in
from millstream.client.protocol.link import Link
from millstream.client.text.position import TopicPartition
from millstream.core.errors import RequestFailed
from millstream.wire.api_keys import (
    OFFSET_FETCH,
)

_AT_ONCE = 200  # groups in a request: other clients' requests wait for at most one of these
_OFFSETS_OF_MANY = 8  # the first version of OffsetFetch for several groups; Kafka has it since 3.0


@dataclass(frozen=True, slots=True)
class SurveyedGroup:
    info: GroupInfo
    commits: Mapping[TopicPartition, Committed]

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
            classic = [name for name in names if kinds[name] != "consumer"]
            described = chain(
                *(describe_consumer(link, some) for some in _parts(consumer)),
                *(describe_classic(link, some) for some in _parts(classic)),
            )
            infos = {info.name: info for info in described if isinstance(info, GroupInfo)}
            commits = _commits(cluster, link, names)
            found.update(
                {
                    name: SurveyedGroup(infos[name], commits[name])
                    for name in names
                    if name in infos and name in commits
                }
            )
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
