"""Whether this broker leads, and to which broker clients are sent.

A broker leads, follows another one as its standby, or was replaced by a promoted standby (it is *fenced*). If
it does not lead, it refuses clients' writes and directs clients to the leader. Its own id, which a leader may
have changed, and its own address stay apart from the leader's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.topics.local_topics import LocalTopics
from millstream.core.errors import NotLeader, RequestRefused
from millstream.core.kafka_errors import NOT_CONTROLLER

_log = logging.getLogger(__name__)

Broker = tuple[int, str, int]  # id, host and port, as clients are told


class Role:
    """See the module's description. Lives on the server's loop."""

    def __init__(
        self,
        configured_id: int,
        own_id: int,
        catalogue: Catalogue,
        topics: LocalTopics,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is called when this broker stops leading, and when it leads again."""
        self._catalogue = catalogue
        self._topics = topics
        self._changed = changed
        self.is_follower = False  # another broker leads
        self.refusal: NotLeader | None = None  # for clients' writes while another broker leads
        self.leader_address = ""  # on a standby: the leader that it copies
        self.fenced_by = ""  # the address of the broker that replaced this one as leader
        self.configured_id = configured_id
        self.own_id = own_id
        self.own_host, self.own_port = "", 0  # set by the server once it listens
        self.leader_id, self.host, self.port = own_id, "", 0  # the leader, as clients are told
        self.peers: Sequence[Broker] = ()  # while another broker leads: its standbys

    def listens_at(self, host: str, port: int, *, leads: bool) -> None:
        """Set this broker's address. If it leads, clients are sent there."""
        self.own_host, self.own_port = host, port
        if leads:
            self.host, self.port = host, port

    def take_id(self, node_id: int) -> Sequence[int] | None:
        """Take the id that the leader gave this broker. Returns the configured id and the new one if they
        differ, to be stored; else None."""
        if node_id != self.own_id:
            _log.warning("the leader has node.id %d as well; this broker uses %d", self.own_id, node_id)
            self.own_id = node_id
        return None if node_id == self.configured_id else (self.configured_id, node_id)

    def lead_clients_to(self, leader: Broker, peers: Iterable[Broker] = ()) -> None:
        """Direct clients to this leader, in responses to Metadata. A client that sends its requests here
        anyway is still refused."""
        node_id, self.host, self.port = leader
        self.peers = list(peers)
        if node_id == self.leader_id:
            return
        self.leader_id = node_id
        for topic in self._topics:
            topic.described.clear()

    def stop_leading(self, reason: str) -> None:
        """Refuse clients' writes, to these topics and to topics created later."""
        self.is_follower = True
        self.refusal = NotLeader(reason)
        self._catalogue.refuse(RequestRefused(NOT_CONTROLLER, reason))
        for partition in self._topics.partitions():
            partition.log.refuse(self.refusal)
        self._changed()

    async def fence(self, by: str, node_id: int) -> None:
        """Another broker leads from now on, also after a restart: take no more writes, and direct clients
        to it. Returns when everything accepted before is written. An empty address undoes it."""
        if by:
            self.stop_leading(f"the broker at {by} was promoted and replaces this one")
            host, _, port = by.rpartition(":")
            self.lead_clients_to((node_id, host, int(port)), [(self.own_id, self.own_host, self.own_port)])
        await self._catalogue.write_copy_facts(fenced=by or None)
        self.fenced_by = by
        if by:
            return
        self.is_follower = False
        self.refusal = None
        self._catalogue.refuse(None)
        for partition in self._topics.partitions():
            partition.log.refuse(None)
        self._changed()
        self.lead_clients_to((self.own_id, self.own_host, self.own_port))
