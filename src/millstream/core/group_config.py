"""The settings of a group.

Each setting is a dataclass field. ``core.config`` describes how fields become settings, and reads them. Most
have a setting of the broker's as their default: the same name under ``group.``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.core.errors import ConfigError
from millstream.core.settings import setting

_MAX_INT = 2**31 - 1
_SESSION = "A member leaves the group when it has sent no heartbeat for this long."
_HEARTBEAT = "How often the broker tells members to send a heartbeat."
_ASSIGNMENT = "The shortest time between two assignments."


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of one group, where it has its own. Otherwise the broker's `group.` settings apply."""

    consumer_session_timeout_ms: int = setting(45_000, _SESSION, at_least=1, at_most=_MAX_INT)
    consumer_heartbeat_interval_ms: int = setting(5000, _HEARTBEAT, at_least=1, at_most=_MAX_INT)
    consumer_assignment_interval_ms: int = setting(0, _ASSIGNMENT, at_least=0, at_most=_MAX_INT)
    share_session_timeout_ms: int = setting(45_000, _SESSION, at_least=1, at_most=_MAX_INT)
    share_heartbeat_interval_ms: int = setting(5000, _HEARTBEAT, at_least=1, at_most=_MAX_INT)
    share_assignment_interval_ms: int = setting(0, _ASSIGNMENT, at_least=0, at_most=_MAX_INT)
    share_record_lock_duration_ms: int = setting(
        30_000,
        """How long a consumer of a share group may keep a record without acknowledging it. After that, the
        record is delivered again.""",
        at_least=1000,
        at_most=_MAX_INT,
    )
    share_delivery_count_limit: int = setting(
        5, "How often a share group delivers a record before it gives it up.", at_least=2, at_most=_MAX_INT
    )
    share_partition_max_record_locks: int = setting(
        2000,
        "How many records of one partition the consumers of a share group may hold at once.",
        at_least=100,
        at_most=_MAX_INT,
    )
    # Only a group has these: there is no default of the broker's.
    share_auto_offset_reset: str = setting(
        "latest",
        """Where a share group begins in a partition that is new to it: `earliest`, `latest`, or
        `by_duration:` and an ISO 8601 duration, for records of that age and younger
        (`by_duration:PT1H30M`).""",
    )
    share_isolation_level: str = setting(
        "read_uncommitted",
        """Whether a share group delivers the records of open and aborted transactions too
        (`read_uncommitted`) or only those of committed ones (`read_committed`).""",
        one_of=("read_uncommitted", "read_committed"),
    )
    share_renew_acknowledge_enable: bool = setting(
        True, "Whether consumers of a share group may renew their hold on a record."
    )


_DURATION = re.compile(
    r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_BY_DURATION = "by_duration:"


def auto_offset_reset(text: str) -> str | int:
    """What ``share.auto.offset.reset`` means: a name, or an age in milliseconds. Raises ConfigError."""
    if text in ("earliest", "latest"):
        return text
    if text.startswith(_BY_DURATION) and (parts := _DURATION.fullmatch(text.removeprefix(_BY_DURATION))):
        days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
        return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    raise ConfigError(
        f"share.auto.offset.reset: {text!r} is not earliest, latest, or by_duration: and an ISO 8601 "
        "duration, as in by_duration:PT1H30M"
    )
