"""Topic names: Kafka's rules for them, so that a topic can move to Kafka under the same name."""

from __future__ import annotations

import re

from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import INVALID_TOPIC, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION

_LONGEST = 249  # with "-" and a partition number, it still fits in a file name
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Refuse a name that Kafka would refuse, and say what is wrong with it."""
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "it can't be '.' or '..'"
    elif len(name) > _LONGEST:
        reason = f"it is {len(name)} characters long, at most {_LONGEST} are allowed"
    elif not _LEGAL.fullmatch(name):
        reason = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise RequestRefused(INVALID_TOPIC, f"illegal topic name {name[:300]!r}: {reason}")


def metric_name(name: str) -> str:
    """The topic's name in metrics, which can't contain '.'. No two topics may share one."""
    return name.replace(".", "_")


def no_topic(name: str) -> RequestRefused:
    return RequestRefused(UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def name_taken(name: str, clash: str) -> RequestRefused:
    if clash == name:
        return RequestRefused(TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    return RequestRefused(
        INVALID_TOPIC,
        f"topic name {name} differs from the existing {clash} only in '.' and '_', which metrics can't tell "
        "apart; choose another name",
    )
