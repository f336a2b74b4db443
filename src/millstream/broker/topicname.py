"""Which names a topic may have: Kafka's rules, so that a topic can move to Kafka under its own name."""

from __future__ import annotations

import re

from millstream.broker.codes import INVALID_TOPIC
from millstream.errors import RequestRefused

_LONGEST = 249  # with "-" and a partition number it still fits into a file name
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
    """The name in metrics, where '.' can't stand. Two topics may not share one."""
    return name.replace(".", "_")
