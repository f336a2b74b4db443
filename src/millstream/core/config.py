"""Settings of topics, groups and brokers: names, types, defaults, bounds and meaning, declared once.

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
from millstream.core.settings import Setting, setting

_DAY_MS = 24 * 60 * 60 * 1000
_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


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
        """The codec records are kept in. `producer`: as they came. Otherwise batches of another codec are
        compressed again as they come, on a thread, which costs the producer time and the broker CPU.""",
        one_of=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = setting(
        -1, "The level where `compression.type=gzip`: 1 to 9, -1 for the usual.", at_least=-1, at_most=9
    )
    compression_lz4_level: int = setting(
        9, "The level where `compression.type=lz4`; 9 is fast, others try harder.", at_least=1, at_most=17
    )
    compression_zstd_level: int = setting(
        3, "The level where `compression.type=zstd`.", at_least=-131_072, at_most=22
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
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        (),
        "Kept for tools that set it, not enforced: no replica follows here that could be throttled.",
        each_like=r"\*|\d+:\d+",
    )
    index_interval_bytes: int = setting(
        4096, "Bytes of log between two entries of the sparse offset index.", at_least=0, at_most=_MAX_INT
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        (),
        "Kept for tools that set it, not enforced: no replica follows here that could be throttled.",
        each_like=r"\*|\d+:\d+",
    )
    local_retention_bytes: int = setting(
        -2,
        """With `remote.storage.enable`: oldest segments that are in the archive are deleted here while a
        partition takes more than this on the broker's own disk. -2: as `retention.bytes`; -1: no limit.""",
        at_least=-2,
    )
    local_retention_ms: int = setting(
        -2,
        """With `remote.storage.enable`: segments that are in the archive stay on the broker's own disk as
        well while their newest record is not older than this. -2: as `retention.ms`; -1: for ever.""",
        at_least=-2,
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
        1,
        """Brokers that must have a record, synced, before acks=all is answered: this one and its standbys.
        With 2, a record that was acknowledged survives the loss of either machine, and acks=all is refused
        while no standby is in sync. Topics in memory are not copied, and do not wait.""",
        at_least=1,
    )
    preallocate: bool = setting(
        False,
        "Kept for tools that set it, not enforced: segments grow as records come.",
    )
    remote_log_copy_disable: bool = setting(
        False, "With `remote.storage.enable`: copy nothing more to the archive; what is there is served on."
    )
    remote_log_delete_on_disable: bool = setting(
        False, "When `remote.storage.enable` is turned off, delete what the archive has of the topic."
    )
    remote_storage_enable: bool = setting(
        False,
        """Move sealed segments to the broker's archive (`millstream.archive.url`), from where they are read
        as if they were here. `retention.*` then bounds both together, `local.retention.*` what is here.""",
    )
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
        False, "Kept for tools that set it, not enforced: one node has no other replica to elect."
    )
    millstream_max_decompressed_bytes: int = setting(
        104_857_600,
        """The most that the records of a compressed batch may take when they are decompressed. The broker
        reads the records of every batch before it takes it; a larger one is refused.""",
        at_least=1_048_576,
        at_most=268_435_456,  # millstream's own readers take no more
    )
    millstream_storage: str = setting(
        "disk",
        """Where records are kept: `disk`, or `memory` for a topic that may be lost with the process and
        never touches the disk. Chosen when the topic is created.""",
        one_of=("disk", "memory"),
        dynamic=False,
    )
    millstream_overload: str = setting(
        "buffer",
        """What happens where producers are faster than consumers. `buffer`: the log grows, as far as
        retention and the disk allow. `drop`: it is a ring of `millstream.overload.bytes`, the oldest records
        go. `backpressure`: producers are held while a group of `millstream.overload.groups` is too far
        behind.""",
        one_of=("buffer", "drop", "backpressure"),
    )
    millstream_overload_bytes: int = setting(
        67_108_864, "The most a partition keeps under `millstream.overload=drop`.", at_least=65_536
    )
    millstream_overload_groups: tuple[str, ...] = setting(
        (), "The consumer groups that producers wait for under `millstream.overload=backpressure`."
    )
    millstream_overload_lag_records: int = setting(
        100_000,
        """Producers are held while one of the groups has more records than this before it in a partition.
        -1: any number.""",
        at_least=-1,
    )
    millstream_overload_lag_bytes: int = setting(
        -1,
        "The same in bytes. -1: any number. What is reached first counts.",
        at_least=-1,
    )
    millstream_overload_hold_ms: int = setting(
        10_000,
        """The longest that a producer is held before it is answered, and at most half of the time that its
        request gives the broker.""",
        at_least=1,
        at_most=60_000,
    )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker. In `millstream.toml` they are at the top level, quoted or nested."""

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
    replica_lag_time_max_ms: int = setting(
        30_000,
        """A standby whose last whole copy is older than this is not in sync: `min.insync.replicas` does not
        count it.""",
        at_least=1,
    )
    http_listen: str = setting(
        "",
        """HOST:PORT for metrics (/metrics), health (/healthz) and readiness (/readyz); :PORT is for this
        machine only. Empty: none.""",
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
        """Memory for requests that have arrived in part, over all connections; above it, reading from
        sockets pauses, and connections that have stopped in the middle of a request are closed.""",
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
    group_consumer_session_timeout_ms: int = setting(
        45_000,
        "A member of the consumer protocol that is not heard of for this long is out of its group.",
        at_least=1,
        at_most=_MAX_INT,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, "The least a group may set as its own `consumer.session.timeout.ms`.", at_least=1
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, "The most a group may set as its own `consumer.session.timeout.ms`.", at_least=1
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5000,
        "How often members of the consumer protocol are told to send a heartbeat.",
        at_least=1,
        at_most=_MAX_INT,
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5000, "The least a group may set as its own `consumer.heartbeat.interval.ms`.", at_least=1
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "The most a group may set as its own `consumer.heartbeat.interval.ms`.", at_least=1
    )
    group_consumer_assignment_interval_ms: int = setting(
        0,
        """The least time between two assignments of a group of the consumer protocol; changes in between
        share the next. Kafka's own default is 1000, with which a member that joins starts reading later.""",
        at_least=0,
        at_most=_MAX_INT,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0, "The least a group may set as its own `consumer.assignment.interval.ms`.", at_least=0
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "The most a group may set as its own `consumer.assignment.interval.ms`.", at_least=0
    )
    group_consumer_max_size: int = setting(
        _MAX_INT, "Members a group of the consumer protocol may have.", at_least=1, at_most=_MAX_INT
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        "The assignors that members of the consumer protocol may ask for; the first where nobody asks.",
        one_of=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        """Whether a classic group of consumers becomes one of the consumer protocol when a member of that
        protocol joins (`upgrade`), a classic one again when the last such member leaves (`downgrade`), both
        (`bidirectional`) or neither (`disabled`), while its members go on.""",
        one_of=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
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
    log_cleaner_enable: bool = setting(True, "Compact the logs of topics with `cleanup.policy=compact`.")
    log_cleaner_backoff_ms: int = setting(
        15_000, "How often logs that are due for compaction are looked for.", at_least=0
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        134_217_728,
        """Memory for the keys of a log while it is compacted; where they don't fit, it takes several
        passes.""",
        at_least=1024,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        1.7976931348623157e308,
        "Compaction reads and writes no more than this, together.",
        at_least=1024,
    )
    millstream_disk_full_warning_ms: int = setting(
        86_400_000,
        "Warn in the log when the disk is full sooner than this at present rates. 0: never.",
        at_least=0,
    )
    millstream_group_loss_warning_ms: int = setting(
        7_200_000,
        "Warn in the log when retention overtakes a group sooner than this at present rates. 0: never.",
        at_least=0,
    )
    log_flush_threads: int = setting(
        8, "Threads that sync logs to disk.", at_least=1, at_most=256, dynamic=False
    )
    millstream_archive_url: str = setting(
        "",
        """Where the archive is: a directory, or a URL that fsspec knows (`s3://bucket/path`, `sftp://...`).
        Empty: none, and no topic can have `remote.storage.enable`.""",
        dynamic=False,
    )
    millstream_archive_options: str = setting(
        "",
        """What fsspec needs to know besides the URL, as a JSON object; for S3, for example,
        `{"endpoint_url": "http://localhost:9000"}`. What holds a password is better given by the environment
        variables that the storage's own tools know.""",
        dynamic=False,
        secret=True,
    )
    millstream_archive_cache_bytes: int = setting(
        67_108_864,
        "Memory for what was read from the archive, shared by all readers.",
        at_least=1_048_576,
        dynamic=False,
    )
    remote_log_manager_task_interval_ms: int = setting(
        30_000, "How often segments to be archived, or beyond retention there, are looked for.", at_least=1
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        2, "Segments copied to the archive at once.", at_least=1, at_most=64, dynamic=False
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        _MAX_LONG, "Bytes a second copied to the archive at most.", at_least=1, at_most=_MAX_LONG
    )
    remote_log_reader_threads: int = setting(
        10, "Threads that read from the archive.", at_least=1, at_most=256, dynamic=False
    )
    remote_fetch_max_wait_ms: int = setting(
        500, "How long a Fetch waits for the archive before it is answered without it.", at_least=1
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        30_000, "How long a look-up by time waits for the archive.", at_least=1
    )
    millstream_memory_bytes: int = setting(
        0,
        """The most that all topics with `millstream.storage=memory` have in memory, together. Beyond it, what
        gives way is what the topic has chosen with `millstream.overload`: `buffer` spills to the data
        directory's disk, `drop` forgets, `backpressure` has producers wait. 0: a quarter of the machine's
        memory.""",
        at_least=0,
        dynamic=False,
    )
    millstream_disk_reserve_bytes: int = setting(
        16_777_216,
        """Room kept on the data directory's disk, at most a twentieth of it, so that offsets can be committed
        and topics deleted when producers have filled it. 0: none; then every write is tried.""",
        at_least=0,
        dynamic=False,
    )
    log_level: str = setting(
        "info", "How much is logged.", one_of=("debug", "info", "warning", "error"), dynamic=False
    )
    log_format: str = setting(
        "text", "Log lines for people (`text`) or machines (`json`).", one_of=("text", "json"), dynamic=False
    )
    # Defaults for topics that do not set their own; the same names under `topic.`.
    topic: TopicConfig = field(default_factory=TopicConfig)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of one group, where it has its own. Otherwise the broker's `group.` settings apply."""

    consumer_session_timeout_ms: int = setting(
        45_000, "A member that is not heard of for this long is out.", at_least=1, at_most=_MAX_INT
    )
    consumer_heartbeat_interval_ms: int = setting(
        5000, "How often members are told to send a heartbeat.", at_least=1, at_most=_MAX_INT
    )
    consumer_assignment_interval_ms: int = setting(
        0, "The least time between two assignments.", at_least=0, at_most=_MAX_INT
    )


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
            raise ConfigError(f"unknown setting {name!r}{_closest(name, known)}")
        values[name.replace(".", "_")] = declared.parse(text)
    changed = dataclasses.replace(config, **values)
    if isinstance(changed, TopicConfig):
        _check_overload(changed)
    return changed


def _check_overload(config: TopicConfig) -> None:
    """Raise ConfigError for settings that make sense one by one, but not together."""
    if config.millstream_overload == "backpressure":
        if not config.millstream_overload_groups:
            raise ConfigError(
                "millstream.overload: backpressure needs millstream.overload.groups, the groups to wait for"
            )
        if config.millstream_overload_lag_records < 0 and config.millstream_overload_lag_bytes < 0:
            raise ConfigError(
                "millstream.overload: backpressure needs millstream.overload.lag.records or "
                "millstream.overload.lag.bytes, how far behind a group may be"
            )
    if config.millstream_overload == "drop" and "compact" in config.cleanup_policy:
        raise ConfigError(
            "millstream.overload: drop and cleanup.policy=compact exclude each other: the oldest record of a "
            "key may be its only one"
        )
    if config.millstream_overload == "drop" and config.remote_storage_enable:
        raise ConfigError(
            "millstream.overload: drop and remote.storage.enable exclude each other: a ring would drop what "
            "the archive does not have yet"
        )


_RING_SEGMENTS = 16  # in a full ring, at least
_LARGEST_RING_SEGMENT = 64 * 1024 * 1024


def ring_segment_bytes(ring_bytes: int, segment_bytes: int) -> int:
    """The size of the segments of a ring (``millstream.overload=drop``), which drops them whole."""
    return min(ring_bytes // _RING_SEGMENTS, _LARGEST_RING_SEGMENT, segment_bytes)


def check_archiving(config: TopicConfig, *, archive: bool) -> None:
    """Check what Kafka demands of an archived topic. ``archive``: there is an archive. Raises ConfigError."""
    if not config.remote_storage_enable:
        return
    if not archive:
        raise ConfigError(
            "remote.storage.enable: this broker has no archive; set millstream.archive.url (and data) first"
        )
    if "compact" in config.cleanup_policy:
        raise ConfigError("remote.storage.enable: a compacted topic can't be archived")
    if config.millstream_storage == "memory":
        raise ConfigError("remote.storage.enable: a topic with millstream.storage=memory can't be archived")
    if config.millstream_overload == "drop":
        raise ConfigError(
            "remote.storage.enable: a ring (millstream.overload=drop) can't be archived, its oldest part goes"
        )
    for unit in ("ms", "bytes"):
        local = value_of(config, f"local.retention.{unit}")
        total = value_of(config, f"retention.{unit}")
        if local == -2:
            continue
        if total >= 0 and (local == -1 or local > total):
            raise ConfigError(
                f"local.retention.{unit}: {local} is more than retention.{unit}, which is {total}"
            )
        if config.remote_log_copy_disable and local != total:
            raise ConfigError(
                f"local.retention.{unit}: with remote.log.copy.disable it must be the same as "
                f"retention.{unit} ({total}) or -2, not {local}: nothing more is moved to the archive"
            )


def check_archive_left(before: TopicConfig, after: TopicConfig) -> None:
    """Check that turning archiving off, which deletes what is archived, says so. Raises ConfigError."""
    if (
        before.remote_storage_enable
        and not after.remote_storage_enable
        and not after.remote_log_delete_on_disable
    ):
        raise ConfigError(
            "remote.storage.enable: turning it off deletes what is in the archive; set "
            "remote.log.delete.on.disable=true with it, or keep it and set remote.log.copy.disable=true to "
            "copy nothing more"
        )


def value_of(config: Config, name: str) -> Any:
    """The value of a setting by its public name."""
    return getattr(config, name.replace(".", "_"))


def group_defaults(broker: BrokerConfig) -> GroupConfig:
    """The settings of a group that has none itself: the broker's of the same names under `group.`."""
    names = [field.name for field in dataclasses.fields(GroupConfig)]
    return GroupConfig(**{name: getattr(broker, f"group_{name}") for name in names})


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


def _closest(name: str, known: Mapping[str, Setting]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
