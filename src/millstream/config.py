"""Settings of a topic and of a broker: names, types, defaults, bounds and meaning, declared once.

Each setting is a dataclass field; its public name is the field's with dots (``retention_ms`` is
``retention.ms``), and it is Kafka's own name wherever Kafka has the setting. The documentation, the
answer to DescribeConfigs, the checks on AlterConfigs and the reading of ``millstream.toml`` all come
from these declarations, so none of them can drift.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from millstream.errors import ConfigError

_DAY_MS = 24 * 60 * 60 * 1000
_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting: enough to document it, to check a value and to print one."""

    name: str
    kind: type  # bool, int, float, str, or tuple for a comma-separated list
    default: Any
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] | None = None
    dynamic: bool = True  # can be changed while the broker runs

    def parse(self, text: str) -> Any:
        """The value that ``text`` means, or a ConfigError that says what would be accepted."""
        value: Any
        try:
            if self.kind is bool:
                value = {"true": True, "false": False}[text.strip().lower()]
            elif self.kind is tuple:
                value = tuple(part.strip() for part in text.split(",") if part.strip())
            else:
                value = self.kind(text.strip())
        except (ValueError, KeyError):
            raise ConfigError(f"{self.name}: {text!r} is not {self.accepted()}") from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        if self.at_least is not None and value < self.at_least:
            raise ConfigError(f"{self.name}: {value} is not {self.accepted()}")
        if self.at_most is not None and value > self.at_most:
            raise ConfigError(f"{self.name}: {value} is not {self.accepted()}")
        if self.one_of is not None:
            for part in value if isinstance(value, tuple) else (value,):
                if part not in self.one_of:
                    raise ConfigError(f"{self.name}: {part!r} is not {self.accepted()}")

    def accepted(self) -> str:
        """What is accepted, in words that finish the sentence "... is not"."""
        if self.one_of is not None:
            words = ", ".join(self.one_of)
            return f"one of {words}" if self.kind is not tuple else f"a list of {words}"
        noun = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "text",
            tuple: "a list",
        }[self.kind]
        if self.at_least is not None and self.at_most is not None:
            return f"{noun} from {self.at_least:,} to {self.at_most:,}"
        if self.at_least is not None:
            return f"{noun} of at least {self.at_least:,}"
        if self.at_most is not None:
            return f"{noun} of at most {self.at_most:,}"
        return noun

    def text(self, value: Any) -> str:
        """The value as Kafka writes it in a configuration entry."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] | None = None,
    dynamic: bool = True,
) -> Any:
    """Declare a setting as a dataclass field."""
    return field(
        default=default,
        metadata={
            "doc": " ".join(doc.split()),
            "at_least": at_least,
            "at_most": at_most,
            "one_of": one_of,
            "dynamic": dynamic,
        },
    )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic."""

    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        """What happens to old records: `delete` removes segments beyond retention, `compact` keeps the
        newest record of every key.""",
        one_of=("delete", "compact"),
    )
    compression_type: str = setting(
        "producer",
        "The codec records are kept in. Only `producer` (as they came) is served: batches pass untouched.",
        one_of=("producer",),
    )
    delete_retention_ms: int = setting(
        _DAY_MS, "How long a tombstone outlives compaction, so that readers see the deletion.", at_least=0
    )
    file_delete_delay_ms: int = setting(
        60_000, "How long a deleted segment's files stay on disk for readers still using them.", at_least=0
    )
    flush_messages: int = setting(
        _MAX_LONG,
        """Sync to disk after this many records, whatever acks the producers ask for. 1 syncs every append
        before it is answered; larger numbers sync in the background.""",
        at_least=1,
        at_most=_MAX_LONG,
    )
    flush_ms: int = setting(
        _MAX_LONG, "Sync to disk at the latest this long after an append.", at_least=0, at_most=_MAX_LONG
    )
    index_interval_bytes: int = setting(
        4096, "Bytes of log between two entries of the sparse offset index.", at_least=0, at_most=_MAX_INT
    )
    max_compaction_lag_ms: int = setting(
        _MAX_LONG, "A record is compacted at the latest this long after it was written.", at_least=1
    )
    max_message_bytes: int = setting(
        1_048_588, "The largest record batch accepted, after compression.", at_least=0, at_most=_MAX_INT
    )
    message_timestamp_after_max_ms: int = setting(
        3_600_000,
        "How far ahead of the broker's clock a record's own time may be (CreateTime only).",
        at_least=0,
        at_most=_MAX_LONG,
    )
    message_timestamp_before_max_ms: int = setting(
        _MAX_LONG,
        "How far behind the broker's clock a record's own time may be (CreateTime only).",
        at_least=0,
        at_most=_MAX_LONG,
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        "Whose time a record carries: its producer's (`CreateTime`) or its arrival's (`LogAppendTime`).",
        one_of=("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5, "The share of a log that must be uncompacted before compaction starts.", at_least=0, at_most=1
    )
    min_compaction_lag_ms: int = setting(
        0, "A record stays uncompacted at least this long after it was written.", at_least=0
    )
    min_insync_replicas: int = setting(
        1, "Replicas that must have a record before acks=all is answered. One node: always 1.", at_least=1
    )
    preallocate: bool = setting(False, "Reserve a new segment's disk space at once.")
    retention_bytes: int = setting(
        -1, "Oldest segments are deleted while a partition is larger than this. -1: no limit.", at_least=-1
    )
    retention_ms: int = setting(
        7 * _DAY_MS, "Segments whose newest record is older than this are deleted. -1: never.", at_least=-1
    )
    segment_bytes: int = setting(
        1_073_741_824, "A segment is rolled when it would grow past this.", at_least=1024, at_most=_MAX_INT
    )
    segment_index_bytes: int = setting(
        10_485_760, "A segment is rolled when its offset index is this large.", at_least=12, at_most=_MAX_INT
    )
    segment_jitter_ms: int = setting(
        0, "Random time taken off `segment.ms`, so that partitions do not roll all at once.", at_least=0
    )
    segment_ms: int = setting(
        7 * _DAY_MS, "A segment is rolled when its first record is older than this.", at_least=1
    )
    unclean_leader_election_enable: bool = setting(
        False, "Kept for tools that set it; one node has no other replica to elect."
    )
    millstream_storage: str = setting(
        "disk",
        """Where records are kept: `disk`, or `memory` for a topic that may be lost with the process and
        never touches the disk. Chosen when the topic is created.""",
        one_of=("disk", "memory"),
        dynamic=False,
    )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker. In `millstream.toml` they stand at the top level, quoted or nested."""

    node_id: int = setting(0, "This node's id.", at_least=0, at_most=_MAX_INT, dynamic=False)
    listen: str = setting(
        "127.0.0.1:9092", "The address clients connect to, HOST:PORT. Port 0 takes a free one.", dynamic=False
    )
    advertised_listener: str = setting(
        "", "The HOST:PORT told to clients, where it differs from `listen`. Empty: the same.", dynamic=False
    )
    data: str = setting(
        "", "The directory of logs and catalogue. Empty: everything is in memory.", dynamic=False
    )
    follow: str = setting(
        "",
        """HOST:PORT of the broker that this one is a standby of: it keeps a copy of everything there, and
        takes nothing from clients until it is promoted. Empty: this one leads.""",
        dynamic=False,
    )
    http_listen: str = setting(
        "",
        "HOST:PORT for metrics (/metrics), health (/healthz) and readiness (/readyz). Empty: none.",
        dynamic=False,
    )
    auto_create_topics_enable: bool = setting(
        True, "Create a topic when a client that allows it first asks for it."
    )
    delete_topic_enable: bool = setting(True, "Allow topics to be deleted.")
    num_partitions: int = setting(
        1, "Partitions of a topic created without a number.", at_least=1, at_most=10_000
    )
    max_connections: int = setting(
        10_000, "Clients connected at once; one more is refused.", at_least=1, at_most=_MAX_INT
    )
    connections_max_idle_ms: int = setting(
        600_000, "A connection without a request for this long is closed. -1: never.", at_least=-1
    )
    socket_request_max_bytes: int = setting(
        104_857_600, "The largest request accepted.", at_least=1024, at_most=_MAX_INT, dynamic=False
    )
    queued_max_request_bytes: int = setting(
        268_435_456,
        """Bytes of requests received and not yet answered, over all connections; above it, reading from
        sockets pauses.""",
        at_least=1_048_576,
        dynamic=False,
    )
    connection_max_in_flight: int = setting(
        100,
        "Requests of one connection received and not yet answered; above it, it is not read from.",
        at_least=1,
        dynamic=False,
    )
    connection_max_unsent_bytes: int = setting(
        1_048_576,
        "Bytes of answers a connection has not taken yet; above it, it is not read from.",
        at_least=1024,
        dynamic=False,
    )
    fetch_max_bytes: int = setting(
        57_671_680, "The largest answer to a Fetch, whatever the client asks for.", at_least=1024
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1000, "Incremental fetch sessions kept at once; the least used goes first.", at_least=0, dynamic=False
    )
    group_min_session_timeout_ms: int = setting(
        6000, "The shortest session timeout a group member may ask for.", at_least=1
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session timeout a group member may ask for.", at_least=1
    )
    group_initial_rebalance_delay_ms: int = setting(
        0, "How long a new group waits for more members before its first assignment.", at_least=0
    )
    group_max_size: int = setting(_MAX_INT, "Members a group may have.", at_least=1, at_most=_MAX_INT)
    offset_metadata_max_bytes: int = setting(
        4096, "The longest metadata string an offset commit may carry.", at_least=0
    )
    offsets_retention_minutes: int = setting(
        10_080, "Committed offsets of a group without members are kept this long.", at_least=1
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, "An idle transactional id is forgotten after this.", at_least=1
    )
    transaction_max_timeout_ms: int = setting(
        900_000, "The longest transaction timeout a producer may ask for.", at_least=1, at_most=_MAX_INT - 1
    )
    transaction_two_phase_commit_enable: bool = setting(
        True,
        """Allow transactions without a timeout, which another system decides (KIP-939). One that nobody
        decides holds readers of committed records back for ever; Kafka's own default is false.""",
    )
    producer_id_expiration_ms: int = setting(
        86_400_000, "An idle idempotent producer's sequence numbers are forgotten after this.", at_least=1
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "How often segments beyond retention are looked for.", at_least=1
    )
    log_flush_threads: int = setting(
        8, "Threads that sync logs to disk.", at_least=1, at_most=256, dynamic=False
    )
    log_level: str = setting(
        "info", "How much is logged.", one_of=("debug", "info", "warning", "error"), dynamic=False
    )
    log_format: str = setting(
        "text", "Log lines for people (`text`) or machines (`json`).", one_of=("text", "json"), dynamic=False
    )
    # A topic's settings for topics that do not set their own; the same names under `topic.`.
    topic: TopicConfig = field(default_factory=TopicConfig)


_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
C = TypeVar("C", TopicConfig, BrokerConfig)


def settings_of(config: type[TopicConfig] | type[BrokerConfig]) -> Mapping[str, Setting]:
    """The declared settings of a configuration class, by public name."""
    known = _DECLARED.get(config)
    if known is None:
        known = _DECLARED[config] = _declared(config)
    return known


_DECLARED: dict[type, Mapping[str, Setting]] = {}


def _declared(config: type[TopicConfig] | type[BrokerConfig]) -> Mapping[str, Setting]:
    return {
        f.name.replace("_", "."): Setting(
            name=f.name.replace("_", "."),
            kind=_KINDS.get(str(f.type), tuple),
            default=f.default,
            **f.metadata,
        )
        for f in dataclasses.fields(config)
        if f.metadata
    }


def with_changes(config: C, changes: Mapping[str, str]) -> C:
    """``config`` with settings given as text, by public name, replaced; each checked."""
    known = settings_of(type(config))
    values = {}
    for name, text in changes.items():
        declared = known.get(name)
        if declared is None:
            raise ConfigError(f"unknown setting {name!r}{_closest(name, known)}")
        values[name.replace(".", "_")] = declared.parse(text)
    return dataclasses.replace(config, **values)


def value_of(config: TopicConfig | BrokerConfig, name: str) -> Any:
    """The value of a setting by its public name."""
    return getattr(config, name.replace(".", "_"))


def load_broker_config(path: Path) -> BrokerConfig:
    """Read ``millstream.toml``. Names may be quoted (``"num.partitions" = 3``) or nested; topic defaults
    stand in ``[topic]``."""
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    topic_changes = _flatten(document.pop("topic", {}))
    try:
        topic = with_changes(TopicConfig(), topic_changes)
    except ConfigError as error:
        raise ConfigError(f"{path}: [topic] {error}") from None
    try:
        return dataclasses.replace(with_changes(BrokerConfig(), _flatten(document)), topic=topic)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = prefix + key.replace("_", ".")
        if isinstance(value, dict):
            flat.update(_flatten(value, name + "."))
        elif isinstance(value, list):
            flat[name] = ",".join(str(item) for item in value)
        elif isinstance(value, bool):
            flat[name] = "true" if value else "false"
        else:
            flat[name] = str(value)
    return flat


def _closest(name: str, known: Mapping[str, Setting]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
