"""Settings of brokers and groups, and how all settings are read: declared once, with their types, defaults,
bounds and meaning. The settings of topics are in ``core.topic_config``.

Each setting is a dataclass field. Its public name is the field's with dots (``retention_ms`` is
``retention.ms``), and it is Kafka's own name if Kafka has the setting. The documentation, the response to
DescribeConfigs, the checks on AlterConfigs and the parsing of ``millstream.toml`` all come from these
declarations, so none of them can drift.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from millstream.core.errors import ConfigError
from millstream.core.group_config import GroupConfig, auto_offset_reset
from millstream.core.settings import Setting, setting
from millstream.core.topic_config import TopicConfig, check_overload
from millstream.core.units import did_you_mean

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker. In `millstream.toml` they are at the top level, quoted or nested."""

    node_id: int = setting(0, "The broker's node id.", at_least=0, at_most=_MAX_INT, dynamic=False)
    listen: str = setting(
        "127.0.0.1:9092",
        "The address that clients connect to, HOST:PORT. With port 0 the broker picks a free port.",
        dynamic=False,
    )
    advertised_listener: str = setting(
        "",
        """The HOST:PORT that the broker tells clients to use, if it differs from `listen`. Empty: the same
        as `listen`.""",
        dynamic=False,
    )
    data: str = setting(
        "",
        "The directory for logs and the catalogue. Empty: the broker keeps everything in memory.",
        dynamic=False,
    )
    follow: str = setting(
        "",
        """HOST:PORT of the broker that this broker is a standby of. A standby copies everything from its
        leader and refuses clients until it is promoted. Empty: this broker leads.""",
        dynamic=False,
    )
    replica_lag_time_max_ms: int = setting(
        30_000,
        """A standby is out of sync when its last complete copy is older than this. `min.insync.replicas`
        does not count standbys that are out of sync.""",
        at_least=1,
    )
    http_listen: str = setting(
        "",
        """HOST:PORT for metrics (/metrics), health (/healthz) and readiness (/readyz). With :PORT alone,
        the broker listens on the loopback interface only. Empty: no HTTP server.""",
        dynamic=False,
    )
    auto_create_topics_enable: bool = setting(
        True, "Create a topic when a client that allows this asks for a topic that does not exist."
    )
    delete_topic_enable: bool = setting(True, "Allow clients to delete topics.")
    num_partitions: int = setting(
        1, "How many partitions a topic gets if its creator does not say.", at_least=1, at_most=10_000
    )
    max_connections: int = setting(
        10_000,
        "How many clients may be connected at once. The broker refuses connections beyond that.",
        at_least=1,
        at_most=_MAX_INT,
    )
    connections_max_idle_ms: int = setting(
        600_000,
        "The broker closes a connection that has sent no request for this long. -1: never.",
        at_least=-1,
    )
    socket_request_max_bytes: int = setting(
        104_857_600,
        "The largest request that the broker accepts.",
        at_least=1024,
        at_most=_MAX_INT,
        dynamic=False,
    )
    queued_max_request_bytes: int = setting(
        268_435_456,
        """Memory for partly received requests, over all connections. Beyond it, the broker stops reading
        from sockets, and closes connections that have stalled in the middle of a request.""",
        at_least=1_048_576,
        dynamic=False,
    )
    connection_max_in_flight: int = setting(
        100,
        """How many requests of one connection may wait for their responses. Beyond that, the broker stops
        reading from the connection.""",
        at_least=1,
        dynamic=False,
    )
    connection_max_unsent_bytes: int = setting(
        1_048_576,
        """How many bytes of responses one connection may leave unread. Beyond that, the broker stops
        reading from the connection.""",
        at_least=1024,
        dynamic=False,
    )
    fetch_max_bytes: int = setting(
        57_671_680, "The largest response to a Fetch, whatever the client asks for.", at_least=1024
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1000,
        """How many incremental fetch sessions the broker keeps. Beyond that, it evicts a session
        that has been idle for a while, or the smallest one.""",
        at_least=0,
        dynamic=False,
    )
    group_min_session_timeout_ms: int = setting(
        6000, "The shortest session timeout that a group member may ask for.", at_least=1
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session timeout that a group member may ask for.", at_least=1
    )
    group_initial_rebalance_delay_ms: int = setting(
        0, "How long a new group waits for more members before its first assignment.", at_least=0
    )
    group_max_size: int = setting(
        _MAX_INT, "How many members a group may have.", at_least=1, at_most=_MAX_INT
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000,
        "A member of the consumer protocol leaves its group when it has sent no heartbeat for this long.",
        at_least=1,
        at_most=_MAX_INT,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, "The lowest `consumer.session.timeout.ms` that a group may set for itself.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, "The highest `consumer.session.timeout.ms` that a group may set for itself.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5000,
        "How often the broker tells members of the consumer protocol to send a heartbeat.",
        at_least=1,
        at_most=_MAX_INT,
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5000, "The lowest `consumer.heartbeat.interval.ms` that a group may set for itself.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "The highest `consumer.heartbeat.interval.ms` that a group may set for itself.", at_least=1
    )
    group_consumer_assignment_interval_ms: int = setting(
        0,
        """The shortest time between two assignments of a consumer-protocol group. Changes in between wait
        for the next assignment. Kafka's default is 1000, which makes a new member start reading later.""",
        at_least=0,
        at_most=_MAX_INT,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0, "The lowest `consumer.assignment.interval.ms` that a group may set for itself.", at_least=0
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "The highest `consumer.assignment.interval.ms` that a group may set for itself.", at_least=0
    )
    group_consumer_max_size: int = setting(
        _MAX_INT, "How many members a consumer-protocol group may have.", at_least=1, at_most=_MAX_INT
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        """The assignors that members of the consumer protocol may ask for. The first is used when no member
        asks.""",
        one_of=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        """Which conversions of a running group are allowed. `upgrade`: a classic group of consumers becomes
        a consumer-protocol group when a member of that protocol joins. `downgrade`: the group becomes
        classic again when the last such member leaves. `bidirectional` allows both, `disabled` neither.
        Members keep reading during a conversion.""",
        one_of=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_share_session_timeout_ms: int = setting(
        45_000,
        "A member of a share group leaves it when it has sent no heartbeat for this long.",
        at_least=1,
        at_most=_MAX_INT,
    )
    group_share_min_session_timeout_ms: int = setting(
        45_000, "The lowest `share.session.timeout.ms` that a group may set for itself.", at_least=1
    )
    group_share_max_session_timeout_ms: int = setting(
        60_000, "The highest `share.session.timeout.ms` that a group may set for itself.", at_least=1
    )
    group_share_heartbeat_interval_ms: int = setting(
        5000,
        "How often the broker tells members of share groups to send a heartbeat.",
        at_least=1,
        at_most=_MAX_INT,
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        5000, "The lowest `share.heartbeat.interval.ms` that a group may set for itself.", at_least=1
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        15_000, "The highest `share.heartbeat.interval.ms` that a group may set for itself.", at_least=1
    )
    group_share_assignment_interval_ms: int = setting(
        0,
        """The shortest time between two assignments of a share group. Changes in between wait for the next
        assignment. Kafka's default is 1000, which makes a new member start reading later.""",
        at_least=0,
        at_most=_MAX_INT,
    )
    group_share_min_assignment_interval_ms: int = setting(
        0, "The lowest `share.assignment.interval.ms` that a group may set for itself.", at_least=0
    )
    group_share_max_assignment_interval_ms: int = setting(
        15_000, "The highest `share.assignment.interval.ms` that a group may set for itself.", at_least=0
    )
    group_share_max_size: int = setting(
        200, "How many members a share group may have.", at_least=1, at_most=1000
    )
    group_share_assignors: tuple[str, ...] = setting(
        ("simple",), "The assignor of share groups. There is only this one.", one_of=("simple",)
    )
    group_share_max_share_sessions: int = setting(
        2000, "How many consumers of share groups may read from the broker at once.", at_least=1
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000,
        """How long a consumer of a share group may keep a record without acknowledging it. After that, the
        record is delivered again.""",
        at_least=1000,
        at_most=3_600_000,
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000,
        "The lowest `share.record.lock.duration.ms` that a group may set for itself.",
        at_least=1000,
        at_most=30_000,
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000,
        "The highest `share.record.lock.duration.ms` that a group may set for itself.",
        at_least=30_000,
        at_most=3_600_000,
    )
    group_share_delivery_count_limit: int = setting(
        5, "How often a share group delivers a record before it gives it up.", at_least=2, at_most=10
    )
    group_share_min_delivery_count_limit: int = setting(
        2, "The lowest `share.delivery.count.limit` that a group may set for itself.", at_least=2, at_most=5
    )
    group_share_max_delivery_count_limit: int = setting(
        10,
        "The highest `share.delivery.count.limit` that a group may set for itself.",
        at_least=5,
        at_most=25,
    )
    group_share_partition_max_record_locks: int = setting(
        2000,
        "How many records of one partition the consumers of a share group may hold at once.",
        at_least=100,
        at_most=10_000,
    )
    group_share_min_partition_max_record_locks: int = setting(
        100,
        "The lowest `share.partition.max.record.locks` that a group may set for itself.",
        at_least=100,
        at_most=2000,
    )
    group_share_max_partition_max_record_locks: int = setting(
        4000,
        "The highest `share.partition.max.record.locks` that a group may set for itself.",
        at_least=2000,
        at_most=10_000,
    )
    offset_metadata_max_bytes: int = setting(
        4096, "The longest metadata string that an offset commit may carry.", at_least=0
    )
    offsets_retention_minutes: int = setting(
        10_080, "How long the broker keeps the committed offsets of a group without members.", at_least=1
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, "The broker forgets a transactional id that has been idle for this long.", at_least=1
    )
    transaction_max_timeout_ms: int = setting(
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        at_least=1,
        at_most=_MAX_INT - 1,
    )
    transaction_two_phase_commit_enable: bool = setting(
        True,
        """Allow transactions without a timeout, for producers that leave the decision to another system
        (KIP-939). If that system never decides, readers of committed records wait forever. Kafka's default
        is false.""",
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        "The broker forgets the sequence numbers of an idempotent producer that has been idle for this long.",
        at_least=1,
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "How often the broker looks for segments beyond retention.", at_least=1
    )
    log_cleaner_enable: bool = setting(True, "Compact the logs of topics with `cleanup.policy=compact`.")
    log_cleaner_backoff_ms: int = setting(
        15_000, "How often the broker looks for logs that are due for compaction.", at_least=0
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        134_217_728,
        "Memory for a log's keys during compaction. If the keys don't fit, compaction takes several passes.",
        at_least=1024,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        1.7976931348623157e308,
        "The most bytes per second that compaction reads and writes, together.",
        at_least=1024,
    )
    millstream_disk_full_warning_ms: int = setting(
        86_400_000,
        "Log a warning if, at present rates, the disk will be full within this time. 0: never.",
        at_least=0,
    )
    millstream_group_loss_warning_ms: int = setting(
        7_200_000,
        "Log a warning if, at present rates, retention will overtake a group within this time. 0: never.",
        at_least=0,
    )
    log_flush_threads: int = setting(
        8, "How many threads sync logs to disk.", at_least=1, at_most=256, dynamic=False
    )
    millstream_archive_url: str = setting(
        "",
        """The location of the archive: a directory, or a URL that fsspec understands (`s3://bucket/path`,
        `sftp://...`). Empty: there is no archive, and no topic can set `remote.storage.enable`.""",
        dynamic=False,
    )
    millstream_archive_options: str = setting(
        "",
        """More options for fsspec, as a JSON object. For S3, for example: `{"endpoint_url":
        "http://localhost:9000"}`. Passwords and keys are better set in the environment variables that the
        storage's own tools use.""",
        dynamic=False,
        secret=True,
    )
    millstream_archive_cache_bytes: int = setting(
        67_108_864,
        "Memory for blocks read from the archive, shared by all readers.",
        at_least=1_048_576,
        dynamic=False,
    )
    remote_log_manager_task_interval_ms: int = setting(
        30_000,
        """How often the broker looks for segments to copy to the archive, and for archived segments beyond
        retention.""",
        at_least=1,
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        2,
        "How many segments the broker copies to the archive at once.",
        at_least=1,
        at_most=64,
        dynamic=False,
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        _MAX_LONG,
        "The most bytes per second that the broker copies to the archive.",
        at_least=1,
        at_most=_MAX_LONG,
    )
    remote_log_reader_threads: int = setting(
        10, "How many threads read from the archive.", at_least=1, at_most=256, dynamic=False
    )
    remote_fetch_max_wait_ms: int = setting(
        500,
        """How long a Fetch waits for the archive. After that, the response comes without the archived
        records.""",
        at_least=1,
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        30_000, "How long a lookup by time waits for the archive.", at_least=1
    )
    millstream_memory_bytes: int = setting(
        0,
        """The most memory that all topics with `millstream.storage=memory` may use together. When it is
        used up, the topic's `millstream.overload` decides: `buffer` moves records to the data directory's
        disk, `drop` drops the oldest, and `backpressure` makes producers wait. 0: a quarter of the
        machine's memory.""",
        at_least=0,
        dynamic=False,
    )
    millstream_disk_reserve_bytes: int = setting(
        16_777_216,
        """Disk space that the broker reserves in the data directory, at most a twentieth of the disk. When
        producers have filled the disk, the reserve lets clients still commit offsets and delete topics. 0:
        no reserve; the broker attempts every write.""",
        at_least=0,
        dynamic=False,
    )
    log_level: str = setting(
        "info", "How much the broker logs.", one_of=("debug", "info", "warning", "error"), dynamic=False
    )
    log_format: str = setting(
        "text",
        "The format of log lines: `text` for people, `json` for machines.",
        one_of=("text", "json"),
        dynamic=False,
    )
    # Defaults for topics that do not set their own; the same names under `topic.`.
    topic: TopicConfig = field(default_factory=TopicConfig)


_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
C = TypeVar("C", TopicConfig, BrokerConfig, GroupConfig)
Config = TopicConfig | BrokerConfig | GroupConfig


def settings_of(config: type[Config]) -> Mapping[str, Setting]:
    """The declared settings of a configuration class, by public name."""
    known = _DECLARED.get(config)
    if known is None:
        known = _DECLARED[config] = _declared(config)
    return known


_DECLARED: dict[type, Mapping[str, Setting]] = {}


def _declared(config: type[Config]) -> Mapping[str, Setting]:
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
    """``config`` with settings replaced, given as text by their public names. Each is checked."""
    known = settings_of(type(config))
    values = {}
    for name, text in changes.items():
        declared = known.get(name)
        if declared is None:
            hint = did_you_mean(name, known)
            raise ConfigError(f"unknown setting {name!r}{hint and f'; {hint}'}")
        values[name.replace(".", "_")] = declared.parse(text)
    changed = dataclasses.replace(config, **values)
    if isinstance(changed, TopicConfig):
        check_overload(changed)
    elif isinstance(changed, GroupConfig):
        auto_offset_reset(changed.share_auto_offset_reset)  # raises ConfigError
    return changed


def value_of(config: Config, name: str) -> Any:
    """The value of a setting by its public name."""
    return getattr(config, name.replace(".", "_"))


def group_defaults(broker: BrokerConfig) -> GroupConfig:
    """The settings of a group that has none itself: the broker's of the same names under `group.`, if any."""
    names = [field.name for field in dataclasses.fields(GroupConfig)]
    return GroupConfig(
        **{name: getattr(broker, f"group_{name}") for name in names if hasattr(broker, f"group_{name}")}
    )


def load_broker_config(path: Path) -> BrokerConfig:
    """Read ``millstream.toml``: names quoted (``"num.partitions" = 3``) or nested, topics in ``[topic]``."""
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
