"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings.

The settings of topics, groups and the broker are declared in ``core.config`` and ``core.topic_config``. The
responses here are derived from the declarations. A group has one entry that can't be set: what it missed
(``broker.catalogue.losses``), as JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.topic import Topic
from millstream.broker.catalogue.topic_names import check_topic_name
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.broker.overload.description import memory_state, overload_state
from millstream.broker.topics.partition import LocalTopic
from millstream.broker.upkeep.compaction_status import compaction_state
from millstream.broker.upkeep.stopped_logs import stopped_state, uncompacted_state
from millstream.core.config import (
    BrokerConfig,
    Config,
    group_defaults,
    settings_of,
    value_of,
    with_changes,
)
from millstream.core.errors import ConfigError, RequestRefused
from millstream.core.group_config import GroupConfig
from millstream.core.kafka_errors import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from millstream.core.settings import Setting
from millstream.core.topic_config import TopicConfig, check_archive_left
from millstream.wire.api_keys import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from millstream.wire.codec.schema_codec import Answer, Lazily

_TOPIC, _BROKER, _GROUP = 2, 4, 32  # types of resources
_LOGGER, _CLIENT_METRICS = 8, 16  # types that have none here
_CONFIGS: Mapping[int, type[Config]] = {_TOPIC: TopicConfig, _BROKER: BrokerConfig, _GROUP: GroupConfig}
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)  # the operations of IncrementalAlterConfigs

# The sources of a value.
_FROM_TOPIC = 1
_FROM_BROKER_CHANGE = 2
_FROM_CLUSTER_CHANGE = 3
_FROM_FILE = 4
_FROM_DEFAULT = 5
_FROM_GROUP = 8

_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
_MAX_INT = 2**31 - 1

Entry = dict[str, Any]

# Not settings: entries that describe a topic's present state, shown with its settings.
_STATE = Setting(
    "millstream.overload.state",
    str,
    "",
    "What `millstream.overload` is doing at this moment. Read-only; absent while it does nothing.",
    dynamic=False,
)
_MEMORY = Setting(
    "millstream.memory.state",
    str,
    "",
    "How much of a memory topic is in memory, and how much has spilled. Read-only; absent if it is empty.",
    dynamic=False,
)
_COMPACTION = Setting(
    "millstream.compaction.state",
    str,
    "",
    "The progress of compaction, and what it did last. Read-only; absent if the topic is not compacted.",
    dynamic=False,
)
_STOPPED = Setting(
    "millstream.stopped.state",
    str,
    "",
    "The partitions that take no writes until the broker is restarted, and why. Read-only; absent while all "
    "partitions take writes.",
    dynamic=False,
)
_UNCOMPACTED = Setting(
    "millstream.uncompacted.state",
    str,
    "",
    "The partitions that are no longer compacted, and why. Read-only; absent if there are none.",
    dynamic=False,
)
# The broker settings that Kafka names as defaults of topic settings: "log." and the topic's name, except
# for these.
_OF_BROKER = {
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


@serves(DESCRIBE_CONFIGS, versions=(1, 4))
def describe_configs(node: Node, request: Any, client: Client) -> Answer:
    documented = getattr(request, "include_documentation", False)

    def describe(resource: Any) -> Answer:
        result = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            entries = _entries(node, resource)
        except RequestRefused as refused:
            return {**result, "error_code": refused.code, "error_message": str(refused)}
        for entry in entries:
            if not request.include_synonyms:
                entry["synonyms"] = []
            if not documented:
                entry["documentation"] = None
        keys = set(resource.configuration_keys or ())
        chosen = [entry for entry in entries if not keys or entry["name"] in keys]
        return {**result, "error_code": NONE, "error_message": None, "configs": chosen}

    # Each takes some tens of kilobytes while it is made, so they are made one at a time. Repeated
    # resources are described once.
    return {"results": Lazily(tuple(dict.fromkeys(request.resources)), describe)}


def _entries(node: Node, resource: Any) -> list[Entry]:
    if resource.resource_type == _TOPIC:
        topic = _topic(node, resource.resource_name)
        hosted = node.hosted.get(topic.name)
        return topic_entries(node, topic) + ([] if hosted is None else _state_entries(node, hosted))
    if resource.resource_type == _BROKER:
        _check_broker(node, resource.resource_name)
        return _broker_entries(node, everything=bool(resource.resource_name))
    if resource.resource_type == _GROUP:
        _check_group(resource.resource_name)
        return [*_group_entries(node, resource.resource_name), _losses_entry(node, resource.resource_name)]
    raise _unknown_kind(resource.resource_type)


def topic_entries(node: Node, topic: Topic) -> list[Entry]:
    """All settings of a topic, each with the source of its value."""
    entries = []
    for name, setting in settings_of(TopicConfig).items():
        origins = []
        if name in topic.overrides:
            origins.append((name, value_of(topic.config, name), _FROM_TOPIC))
        if name in _OF_TOPICS_ONLY:
            entries.append(_entry(setting, origins))
            continue
        default = value_of(node.config.topic, name)
        if default != setting.default:
            origins.append((_of_broker(name), default, _FROM_FILE))
        origins.append((_of_broker(name), setting.default, _FROM_DEFAULT))
        entries.append(_entry(setting, origins))
    return entries


# The topic settings that have no broker setting as their default.
_OF_TOPICS_ONLY = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


def _state_entries(node: Node, topic: LocalTopic) -> list[Entry]:
    """Read-only entries that tell how a topic is doing."""
    states = (
        (_STATE, overload_state(topic, node.backpressure, node.memory, node.logs.full)),
        (_MEMORY, memory_state(topic, node.memory)),
        (_COMPACTION, compaction_state(topic)),
        (_STOPPED, stopped_state(topic)),
        (_UNCOMPACTED, uncompacted_state(topic)),
    )
    return [_entry(kind, [(kind.name, state, _FROM_DEFAULT)]) for kind, state in states if state]


def _of_broker(name: str) -> str:
    """The broker setting that is a topic setting's default. Our own settings have the same name in both."""
    return name if name.startswith("millstream.") else _OF_BROKER.get(name, f"log.{name}")


def _broker_entries(node: Node, *, everything: bool) -> list[Entry]:
    """The settings of the broker, or only those that were changed for all brokers while they ran.

    The broker's own value takes precedence over one for all brokers, then comes the file's, then the
    default. These are a setting's synonyms, in Kafka's words, and the first one gives its value.
    """
    own, everywhere = node.catalogue.broker_overrides, node.catalogue.cluster_overrides
    entries = []
    for name, setting in settings_of(BrokerConfig).items():
        changes = [(everywhere, _FROM_CLUSTER_CHANGE)]
        if everything:
            changes.insert(0, (own, _FROM_BROKER_CHANGE))
        origins = [(name, setting.parse(known[name]), source) for known, source in changes if name in known]
        if everything:
            configured = value_of(node.configured, name)
            if configured != setting.default:
                origins.append((name, configured, _FROM_FILE))
            origins.append((name, setting.default, _FROM_DEFAULT))
        if origins:
            entries.append(_entry(setting, origins))
    return entries + _by_kafkas_names(node) if everything else entries


def _by_kafkas_names(node: Node) -> list[Entry]:
    """Read-only entries for tools that look for Kafka's names, where ``millstream.toml`` has others."""
    entries = []
    role = node.role
    for name, text, doc in (
        (
            "advertised.listeners",
            f"PLAINTEXT://{node.role.host}:{node.role.port}",
            "The address told to clients.",
        ),
        ("broker.id", str(role.leader_id), "The same as `node.id`."),
        ("listeners", f"PLAINTEXT://{node.config.listen}", "The address clients connect to: `listen`."),
        ("log.dirs", node.config.data, "The directory of logs and catalogue: `data`."),
    ):
        setting = Setting(name, str, "", doc, dynamic=False)
        entries.append(_entry(setting, [(name, text, _FROM_FILE)]))
    for name, topics in settings_of(TopicConfig).items():
        if name.startswith("millstream.") or name in _OF_TOPICS_ONLY:
            continue
        value = value_of(node.config.topic, name)
        setting = replace(topics, name=_of_broker(name), dynamic=False)
        source = _FROM_DEFAULT if value == topics.default else _FROM_FILE
        entries.append(_entry(setting, [(setting.name, value, source)]))
    return entries


def _losses_entry(node: Node, group: str) -> Entry:
    lost = [
        {"topic": topic, "partition": partition, **loss._asdict()}
        for (topic, partition), loss in node.catalogue.losses.of(group).items()
    ]
    return {
        "name": "millstream.losses",
        "value": json.dumps(lost),
        "read_only": True,
        "config_source": _FROM_DEFAULT,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": _STRING,
        "documentation": "Records that were deleted before the group had committed them, by partition.",
    }


def _group_entries(node: Node, group: str) -> list[Entry]:
    """All settings of a group, which need not exist: its own on top of the broker's."""
    own = node.catalogue.group_overrides.get(group, {})
    of_broker = {entry["name"]: entry for entry in _broker_entries(node, everything=True)}
    entries = []
    for name, setting in settings_of(GroupConfig).items():
        origins = [(name, setting.parse(own[name]), _FROM_GROUP)] if name in own else []
        above = of_broker.get(f"group.{name}")
        if above is None:  # only groups have it
            origins.append((name, setting.default, _FROM_DEFAULT))
        entry = _entry(setting, origins)
        if above is not None:
            entry["synonyms"] += above["synonyms"]
            if name not in own:
                entry.update(value=above["value"], config_source=above["config_source"])
        entries.append(entry)
    return entries


def _entry(setting: Setting, origins: list[tuple[str, Any, int]]) -> Entry:
    _, value, source = origins[0] if origins else ("", setting.default, _FROM_DEFAULT)
    return {
        "name": setting.name,
        "value": None if setting.secret else setting.text(value),
        "read_only": not setting.dynamic,
        "config_source": source,
        "is_sensitive": setting.secret,
        "synonyms": [
            {"name": name, "value": None if setting.secret else setting.text(value), "source": source}
            for name, value, source in origins
        ],
        "config_type": _type_of(setting),
        "documentation": setting.doc,
    }


def _type_of(setting: Setting) -> int:
    if setting.kind is int:
        return _INT if setting.at_most is not None and setting.at_most <= _MAX_INT else _LONG
    return {bool: _BOOLEAN, float: _DOUBLE, tuple: _LIST}.get(setting.kind, _STRING)


@serves(ALTER_CONFIGS, versions=(0, 2))
async def alter_configs(node: Node, request: Any, client: Client) -> Answer:
    """Replace all own settings of a topic, a group or the broker by the given ones."""

    def replaced(resource: Any, own: Mapping[str, str]) -> dict[str, str]:
        changed = {}
        for setting in resource.configs:
            if setting.value is None:
                raise RequestRefused(INVALID_REQUEST, f"{setting.name} has no value")
            changed[setting.name] = setting.value
        # Settings that are fixed when the topic is created stay, whether the request names them or not.
        return {**_fixed(resource, own), **changed}

    return await _alter(node, request, replaced)


@serves(INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
async def incremental_alter_configs(node: Node, request: Any, client: Client) -> Answer:
    """Set and remove settings, add to lists and remove from them. Settings that are not named stay."""

    def changed(resource: Any, own: Mapping[str, str]) -> dict[str, str]:
        overrides = dict(own)
        for change in resource.configs:
            if change.config_operation == _DELETE:
                overrides.pop(change.name, None)  # even an unknown one: it is certainly not set now
            elif change.value is None:
                raise RequestRefused(INVALID_REQUEST, f"{change.name} has no value")
            elif change.config_operation == _SET:
                overrides[change.name] = change.value
            elif change.config_operation in (_APPEND, _SUBTRACT):
                setting = _setting(resource, change.name)
                if setting.kind is not tuple:
                    raise RequestRefused(
                        INVALID_CONFIG,
                        f"{change.name} is not a list: nothing can be added to it or removed from it",
                    )
                now = _items(overrides.get(change.name, setting.text(_default(node, resource, setting))))
                rest = [item for item in now if item not in _items(change.value)]
                if change.config_operation == _APPEND:
                    rest = list(dict.fromkeys([*now, *_items(change.value)]))
                overrides[change.name] = ",".join(rest)
            else:
                raise RequestRefused(
                    INVALID_REQUEST, f"unknown operation {change.config_operation} on {change.name}"
                )
        return overrides

    return await _alter(node, request, changed)


async def _alter(node: Node, request: Any, change: Any) -> Answer:
    count = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    # Each change reads, computes and writes before the next one reads. Otherwise one of two concurrent
    # changes would be lost.
    async with node.catalogue.altering:
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            error, message = NONE, None
            try:
                if count[kind, name] > 1:
                    raise RequestRefused(INVALID_REQUEST, f"the request names {name!r} more than once")
                await _alter_one(node, resource, change, request.validate_only)
            except RequestRefused as refused:
                error, message = refused.code, str(refused)
            responses.append(
                {"error_code": error, "error_message": message, "resource_type": kind, "resource_name": name}
            )
    return {"responses": responses}


async def _alter_one(node: Node, resource: Any, change: Any, validate_only: bool) -> None:
    named = Counter(setting.name for setting in resource.configs)
    for name, count in named.items():
        if count > 1:
            raise RequestRefused(INVALID_REQUEST, f"the request changes {name} {count} times")
    kind, name = resource.resource_type, resource.resource_name
    if kind == _TOPIC:
        if not name:
            raise RequestRefused(INVALID_REQUEST, "no topic is named: there are no settings for all of them")
        topic = _topic(node, name)
        overrides = change(resource, topic.overrides)
        _check_change(resource, topic.config, node.catalogue.topic_config(overrides))
        if not validate_only:
            await node.topic_admin.alter(name, overrides)
    elif kind == _BROKER:
        _check_broker(node, name)
        everywhere = not name
        known = node.catalogue
        overrides = change(resource, known.cluster_overrides if everywhere else known.broker_overrides)
        try:
            with_changes(node.config, overrides)
        except ConfigError as error:
            raise RequestRefused(INVALID_CONFIG, str(error)) from None
        for changed in overrides:
            if not _setting(resource, changed).dynamic:
                raise RequestRefused(
                    INVALID_REQUEST,
                    f"{changed} can't be changed while the broker runs; set it in millstream.toml",
                )
        if not validate_only:
            await node.alter_broker(overrides, everywhere=everywhere)
    elif kind == _GROUP:
        _check_group(name, "Default group resources are not allowed.")
        overrides = change(resource, node.catalogue.group_overrides.get(name, {}))
        _check_group_settings(node, overrides)
        if not validate_only:
            await node.alter_group(name, overrides)
    else:
        raise _unknown_kind(kind)


def _topic(node: Node, name: str) -> Topic:
    check_topic_name(name)
    topic = node.catalogue.topics.get(name)
    if topic is None:
        raise RequestRefused(UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return topic


def _check_broker(node: Node, name: str) -> None:
    if name not in ("", str(node.role.leader_id), str(node.role.own_id)):
        raise RequestRefused(
            INVALID_REQUEST, f"there is no broker {name!r} here, only {node.role.leader_id} (or '' for all)"
        )


def _check_group(name: str, wrong: str = "Group name must not be empty") -> None:
    if not name:
        raise RequestRefused(INVALID_REQUEST, wrong)


def _check_group_settings(node: Node, overrides: Mapping[str, str]) -> None:
    """Check a group's own settings: each within the broker's bounds, and all of them together."""
    broker = node.config
    try:
        own = with_changes(group_defaults(broker), overrides)
    except ConfigError as error:
        raise RequestRefused(INVALID_CONFIG, str(error)) from None
    bounds = settings_of(BrokerConfig)
    for name in overrides:
        kind, _, rest = name.partition(".")
        value = value_of(own, name)
        least, most = (f"group.{kind}.{bound}.{rest}" for bound in ("min", "max"))
        if least in bounds and value < value_of(broker, least):
            raise RequestRefused(INVALID_CONFIG, f"{name} must be greater than or equal to {least}")
        if most in bounds and value > value_of(broker, most):
            raise RequestRefused(INVALID_CONFIG, f"{name} must be less than or equal to {most}")
    for kind in ("consumer", "share"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if value_of(own, session) <= value_of(own, heartbeat):
            raise RequestRefused(INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


@serves(LIST_CONFIG_RESOURCES, versions=(0, 1))
def list_config_resources(node: Node, request: Any, client: Client) -> Answer:
    """List what has settings: topics, the broker, and groups that have some of their own.

    Version 0 asks for the metrics that clients should send: there are none.
    """
    kinds = set(request.resource_types) if client.version >= 1 else {_CLIENT_METRICS}
    if kinds - {_TOPIC, _BROKER, _GROUP, _LOGGER, _CLIENT_METRICS}:
        return {"error_code": UNSUPPORTED_VERSION, "config_resources": []}
    found = [(_BROKER, str(node.role.leader_id))]
    found += [(_TOPIC, topic.name) for topic in node.topics]
    found += [(_GROUP, name) for name in node.catalogue.group_overrides]
    return {
        "error_code": NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind, name in found
            if not kinds or kind in kinds
        ],
    }


def _settings(resource: Any) -> Mapping[str, Setting]:
    return settings_of(_CONFIGS[resource.resource_type])


def _setting(resource: Any, name: str) -> Setting:
    declared = _settings(resource).get(name)
    if declared is None:
        raise RequestRefused(INVALID_CONFIG, f"unknown setting {name!r}")
    return declared


def _default(node: Node, resource: Any, setting: Setting) -> Any:
    if resource.resource_type == _GROUP:
        return value_of(group_defaults(node.config), setting.name)
    config = node.config.topic if resource.resource_type == _TOPIC else node.config
    return value_of(config, setting.name)


def _fixed(resource: Any, own: Mapping[str, str]) -> dict[str, str]:
    declared = _settings(resource)
    return {
        name: text
        for name, text in own.items()
        if resource.resource_type == _TOPIC and name in declared and not declared[name].dynamic
    }


def _check_change(resource: Any, before: TopicConfig, after: TopicConfig) -> None:
    for name, setting in _settings(resource).items():
        if not setting.dynamic and value_of(before, name) != value_of(after, name):
            raise RequestRefused(
                INVALID_CONFIG, f"{name} is chosen when a topic is created and can't be changed afterwards"
            )
    try:
        check_archive_left(before, after)
    except ConfigError as error:
        raise RequestRefused(INVALID_CONFIG, str(error)) from None


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _unknown_kind(kind: int) -> RequestRefused:
    return RequestRefused(
        INVALID_REQUEST,
        f"resources of type {kind} have no settings here, only topics (2), brokers (4) and groups (32)",
    )
