"""A topic's settings with all that a broker reports: where a value comes from, its default, its meaning.

The request is sent directly, because librdkafka leaves the documentation out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from millstream.client.connect import Connection
from millstream.client.errors import refused
from millstream.client.protocol.cluster import Cluster
from millstream.core.config import settings_of
from millstream.core.topic_config import TopicConfig
from millstream.wire.api_keys import DESCRIBE_CONFIGS

_TOPIC = 2  # the type of resource
_TELLS_MEANING = 3  # the version with types and documentation; Kafka has it since 2.6
_OLDEST = 1

Source = Literal["topic", "broker", "default"]
Kind = Literal["boolean", "number", "list", "text", "secret"]
_SOURCES: dict[int, Source] = {1: "topic", 2: "broker", 3: "broker", 4: "broker"}
_KINDS: dict[int, Kind] = {
    1: "boolean",
    3: "number",
    4: "number",
    5: "number",
    6: "number",
    7: "list",
    9: "secret",
}


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """``source`` is where ``value`` comes from. ``inherited`` is the value if the topic sets none itself.
    ``meaning`` is empty if neither the broker nor millstream knows it."""

    name: str
    value: str | None
    inherited: str | None
    source: Source
    kind: Kind
    read_only: bool
    meaning: str


def topic_settings(connection: Connection, topic: str) -> list[TopicSetting]:
    """Every setting of a topic, sorted by name."""
    cluster = Cluster(connection, patience=connection.patience)

    def ask() -> list[TopicSetting]:
        link = cluster.any_link()
        version = max(_OLDEST, min(_TELLS_MEANING, link.newest(DESCRIBE_CONFIGS)))
        resource = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": None}
        fields = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        (result,) = link.request(DESCRIBE_CONFIGS, fields, version).results
        if result.error_code:
            raise refused(int(result.error_code), f"settings of topic {topic!r}", result.error_message or "")
        return sorted((_setting(entry) for entry in result.configs), key=lambda setting: setting.name)

    try:
        return cluster.patiently(f"reading the settings of topic {topic!r}", ask)
    finally:
        cluster.close()


def settings_of_ours(known: Collection[str]) -> dict[str, str]:
    """The settings that only millstream's broker has, with their meaning; without those in ``known``."""
    return {
        name: setting.doc
        for name, setting in settings_of(TopicConfig).items()
        if name.startswith("millstream.") and name not in known
    }


def _setting(entry: Any) -> TopicSetting:
    others = [synonym.value for synonym in entry.synonyms if _SOURCES.get(synonym.source) != "topic"]
    source = _SOURCES.get(int(entry.config_source), "default")
    ours = settings_of(TopicConfig).get(entry.name)
    return TopicSetting(
        str(entry.name),
        entry.value,
        others[0] if others else (None if source == "topic" else entry.value),
        source,
        "secret" if entry.is_sensitive else _KINDS.get(int(getattr(entry, "config_type", 0)), "text"),
        bool(entry.read_only),
        plain_text(getattr(entry, "documentation", None) or "") or (ours.doc if ours is not None else ""),
    )


def plain_text(documentation: str) -> str:
    """A broker's description of a setting, without the HTML that Apache Kafka writes into it. Code is in
    backquotes, as in millstream's own descriptions."""
    text = re.sub(r"</?code>", "`", documentation)
    text = re.sub(r"<(?:p|br|li)\s*/?>", " ", text)
    text = html.unescape(re.sub(r"</?[a-zA-Z][^<>]*>", "", text))
    return re.sub(r"\s+", " ", text).strip()
