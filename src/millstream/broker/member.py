"""A member of a group, and the words a group and its members speak: joins and the answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Protocols = tuple[tuple[str, bytes], ...]  # names in the member's order of preference, each with its metadata

NEW_MEMBER_JOIN_TIMEOUT = 300.0
"""Seconds a new member's join may wait. It has no session to lose yet, and may have given up long ago."""


class Join(NamedTuple):
    """What a JoinGroup asks for."""

    member_id: str  # empty: a new member
    instance_id: str | None  # set: a static member, which keeps its place over restarts
    client_id: str
    client_host: str
    session_timeout: float  # seconds
    rebalance_timeout: float  # seconds
    protocol_type: str
    protocols: Protocols
    reason: str = ""
    id_required: bool = False  # this client can be sent back to join under a given id (version 4 and up)
    can_skip_assignment: bool = (
        False  # a returning static leader can be told not to assign (version 9 and up)
    )


class Joined(NamedTuple):
    """The answer to a join."""

    error: int
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[tuple[str, str | None, bytes]] = ()  # id, instance id, metadata; for the leader only


class Synced(NamedTuple):
    """The answer to a sync."""

    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Member:
    """One member. ``joining`` and ``syncing`` are the requests of it that wait for an answer, if any."""

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

    def __init__(self, member_id: str, join: Join, deadline: float) -> None:
        self.member_id = member_id
        self.instance_id = join.instance_id
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.assignment = b""
        self.is_new = True  # has not been part of a generation yet
        self.deadline = deadline  # monotonic; it is removed when it has not been heard of by then
        self.joining: Any = None
        self.syncing: Any = None
        self.update(join)

    def update(self, join: Join) -> None:
        self.session_timeout = join.session_timeout
        self.rebalance_timeout = join.rebalance_timeout
        self.protocols = join.protocols

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""
