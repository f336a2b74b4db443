"""What every kind of group offers to callers that do not care about its kind.

``Group`` is the state machine of one group. ``Coordinator`` connects all groups of one kind to time, storage
and their clients. A kind is added by writing both in a folder of its own and registering its coordinator in
``broker.groups.coordinator``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Protocol


class Group(Protocol):
    """One group. A state machine without I/O."""

    empty_since_ms: int  # wall time; -1 while it has members. Maintained by the directory

    @property
    def kind(self) -> str:
        """The type that ListGroups shows. It is stored with the group."""

    @property
    def name(self) -> str: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def state(self) -> enum.Enum:
        """Its value is the name that ListGroups shows."""

    @property
    def wake_at(self) -> float:
        """No deadline is earlier than this (monotonic seconds). ``tick`` need not be called before."""

    def tick(self, now: float) -> None:
        """Let time take effect."""

    @property
    def is_empty(self) -> bool:
        """True if it has no members, so it may be deleted."""

    @property
    def may_be_forgotten(self) -> bool:
        """True if nothing would be lost with it once its offsets have expired."""

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members have subscribed to. None if that can't be known."""

    def topics_in_use(self) -> frozenset[str] | None:
        """The topics whose offsets do not expire. None if no offset may expire now."""

    # Each of these returns NONE or an error code. A member that uses no epochs sends its generation.

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        now: float,
        /,
        *,
        transactional: bool,
        by_epoch: bool,
    ) -> int:
        """May this member commit offsets, now or (``transactional``) with its transaction?

        ``by_epoch``: its request knows member epochs.
        """

    def check_partition(self, member_id: str, epoch: int, partition: tuple[bytes, int], /) -> int:
        """May a commit that ``check_commit`` allowed include this partition (topic id, index)?"""

    def check_fetch(self, member_id: str | None, epoch: int, /) -> int:
        """May this member read the group's offsets?"""

    def check_offset_delete(self) -> int:
        """May offsets be deleted, in topics that no member has subscribed to?"""


class Coordinator(Protocol):
    """Runs the groups of one kind, each of which it has put into the directory."""

    @property
    def kind(self) -> str: ...

    def restore(self, name: str, fields: Mapping[str, Any]) -> None:
        """Continue with a group that was saved before a restart."""

    def configure(self, name: str) -> None:
        """Apply the settings that hold for a group now."""

    def follow_up(self, name: str) -> None:
        """Save what a group agreed on and send its responses. Called after anything that may change it."""

    def drop(self, name: str) -> None:
        """Stop a group that the directory has removed. Clients that wait for it are answered."""

    def close(self) -> None:
        """Shut down: waiting clients are told to look for a coordinator again. May be called twice."""
