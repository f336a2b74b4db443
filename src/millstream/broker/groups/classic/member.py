"""A member of a classic group, and the values of its JoinGroup and SyncGroup requests and responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Protocols = tuple[tuple[str, bytes], ...]  # names in the member's order of preference, each with its metadata

NEW_MEMBER_JOIN_TIMEOUT = 300.0
"""Seconds a new member's join may wait. It has no session that could expire, and its client may be gone."""


class JoinRequest(NamedTuple):
    """A JoinGroup request."""

    member_id: str  # empty: a new member
    instance_id: str | None  # set: a static member, which keeps its place across restarts
    client_id: str
    client_host: str
    session_timeout: float  # seconds
    rebalance_timeout: float  # seconds
    protocol_type: str
    protocols: Protocols
    reason: str = ""
    id_required: bool = False  # the client can be told to rejoin with a given member id (version 4 and up)
    can_skip_assignment: bool = (
        False  # a static leader that returns can be told not to assign (version 9 and up)
    )


class JoinResponse(NamedTuple):
    """The response to a join."""

    error: int
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[tuple[str, str | None, bytes]] = ()  # id, instance id, metadata; for the leader only


class SyncResponse(NamedTuple):
    """The response to a sync."""

    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class ClassicMember:
    """One member. ``joining`` and ``syncing`` are its requests that wait for a response, if any."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout",
        "session_timeout",
        "syncing",
    )

    def __init__(self, member_id: str, join: JoinRequest, deadline: float) -> None:
        self.member_id = member_id
        self.instance_id = join.instance_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.assignment = b""
        self.is_new = True  # it has not been part of a generation yet
        self.deadline = deadline  # monotonic; the member is removed if nothing is heard from it by then
        self.joining: Any = None
        self.syncing: Any = None
        self.update(join)

    def update(self, join: JoinRequest) -> None:
        self.session_timeout = join.session_timeout
        self.rebalance_timeout = join.rebalance_timeout
        self.protocols = join.protocols

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""
