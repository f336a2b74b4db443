"""Many consumer groups at once: who is in them and what they have committed, by a few requests to each
coordinator. librdkafka asks for every group by itself, and twice; that is slow where there are a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from millstream.client import raw
from millstream.client.cluster import Cluster, Committed, commits_in
from millstream.client.connect import Connection
from millstream.client.groups import GroupInfo, GroupListing, describe_classic, describe_consumer
from millstream.client.position import TopicPartition
from millstream.client.raw import Link
from millstream.errors import RequestFailed

_AT_ONCE = 200  # groups in a request: whoever asks the broker something else waits for one of them at most
_OFFSETS_OF_MANY = 8  # the version of OffsetFetch that takes several groups; Kafka has it since 3.0


@dataclass(frozen=True, slots=True)
class Surveyed:
    info: GroupInfo
    commits: Mapping[TopicPartition, Committed]

    @property
    def topics(self) -> set[str]:
        """Those that it has committed offsets of, or members on."""
        read = (place for member in self.info.members for place in member.assigned)
        return {place.topic for place in (*self.commits, *read)}


def survey(connection: Connection, listed: Sequence[GroupListing]) -> dict[str, Surveyed]:
    """The groups of a list. Left out are those that can't be told of now: deleted since they were listed, on
    their way to another coordinator, not permitted, or of a kind that is not described (nor read by name)."""
    cluster = Cluster(connection, patience=connection.patience)
    kinds = {group.name: group.kind for group in listed if group.name}

    def ask() -> dict[str, Surveyed]:
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
                    name: Surveyed(infos[name], commits[name])
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
    if link.newest(raw.OFFSET_FETCH) < _OFFSETS_OF_MANY:
        return {name: cluster.commits(name, require_stable=False) for name in names}
    for some in _parts(names):
        fields = {"groups": [{"group_id": name, "topics": None} for name in some], "require_stable": False}
        for group in link.request(raw.OFFSET_FETCH, fields, _OFFSETS_OF_MANY).groups:
            try:
                found[str(group.group_id)] = commits_in(group, group.group_id)
            except RequestFailed:
                continue  # of this one; the others are told
    return found
