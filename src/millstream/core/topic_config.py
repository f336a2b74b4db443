"""The settings of a topic, and the rules that they must follow together.

Each setting is a dataclass field. ``core.config`` describes how fields become settings, and reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.core.errors import ConfigError
from millstream.core.settings import setting

_DAY_MS = 24 * 60 * 60 * 1000
_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic."""

    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        """What happens to old records. `delete` removes segments beyond retention. `compact` keeps the
        newest record of each key.""",
        one_of=("delete", "compact"),
    )
    compression_type: str = setting(
        "producer",
        """The codec that records are stored with. `producer` keeps the producer's own. With any other
        value, the broker recompresses batches that use a different codec. It does so on a thread as they
        arrive, which delays the producer's response and costs the broker CPU time.""",
        one_of=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_gzip_level: int = setting(
        -1,
        "The gzip level for `compression.type=gzip`: 1 to 9, or -1 for gzip's default.",
        at_least=-1,
        at_most=9,
    )
    compression_lz4_level: int = setting(
        9,
        """The LZ4 level for `compression.type=lz4`. Level 9 is fast. Every other level uses the slower,
        high-compression mode.""",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level: int = setting(
        3, "The Zstandard level for `compression.type=zstd`.", at_least=-131_072, at_most=22
    )
    delete_retention_ms: int = setting(
        _DAY_MS, "How long compaction keeps a tombstone, so that readers see the deletion.", at_least=0
    )
    file_delete_delay_ms: int = setting(
        60_000,
        "How long the files of a deleted segment stay on disk, for readers that still use them.",
        at_least=0,
    )
    flush_messages: int = setting(
        _MAX_LONG,
        """The log is synced to disk after this many records, whatever acks the producers ask for. With 1,
        every append is synced before it is acknowledged. With larger numbers, syncs run in the
        background.""",
        at_least=1,
        at_most=_MAX_LONG,
    )
    flush_ms: int = setting(
        _MAX_LONG,
        "The log is synced to disk at most this long after an append.",
        at_least=0,
        at_most=_MAX_LONG,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        (),
        "Accepted for tools that set it, and ignored: replication is not throttled.",
        each_like=r"\*|\d+:\d+",
    )
    index_interval_bytes: int = setting(
        4096,
        "How many bytes of log lie between two entries of the sparse offset index.",
        at_least=0,
        at_most=_MAX_INT,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        (),
        "Accepted for tools that set it, and ignored: replication is not throttled.",
        each_like=r"\*|\d+:\d+",
    )
    local_retention_bytes: int = setting(
        -2,
        """For topics with `remote.storage.enable`: the largest size of a partition on the broker's own
        disk. Beyond it, the broker deletes the oldest segments that are in the archive. -2: the same as
        `retention.bytes`. -1: no limit.""",
        at_least=-2,
    )
    local_retention_ms: int = setting(
        -2,
        """For topics with `remote.storage.enable`: how long an archived segment also stays on the broker's
        own disk, counted from its newest record. -2: the same as `retention.ms`. -1: forever.""",
        at_least=-2,
    )
    max_compaction_lag_ms: int = setting(
        _MAX_LONG, "The longest a record may stay uncompacted after it was written.", at_least=1
    )
    max_message_bytes: int = setting(
        1_048_588,
        "The largest record batch that the broker accepts. The size counts after compression.",
        at_least=0,
        at_most=_MAX_INT,
    )
    message_timestamp_after_max_ms: int = setting(
        3_600_000,
        "How far a record's own timestamp may be ahead of the broker's clock (CreateTime only).",
        at_least=0,
        at_most=_MAX_LONG,
    )
    message_timestamp_before_max_ms: int = setting(
        _MAX_LONG,
        "How far a record's own timestamp may be behind the broker's clock (CreateTime only).",
        at_least=0,
        at_most=_MAX_LONG,
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        """Which timestamp a record carries: the producer's (`CreateTime`), or the time at which the broker
        appended it (`LogAppendTime`).""",
        one_of=("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5, "Compaction starts when this share of the log is uncompacted.", at_least=0, at_most=1
    )
    min_compaction_lag_ms: int = setting(
        0, "The shortest time a record stays uncompacted after it was written.", at_least=0
    )
    min_insync_replicas: int = setting(
        1,
        """How many brokers must have synced a record before acks=all is acknowledged: this broker and its
        standbys. With 2, an acknowledged record survives the loss of either machine, and acks=all is
        refused while no standby is in sync. Topics in memory are not copied to standbys and do not wait for
        them.""",
        at_least=1,
    )
    preallocate: bool = setting(
        False,
        "Accepted for tools that set it, and ignored: segment files grow as records arrive.",
    )
    remote_log_copy_disable: bool = setting(
        False,
        """For topics with `remote.storage.enable`: stop copying segments to the archive. Segments already
        there can still be read.""",
    )
    remote_log_delete_on_disable: bool = setting(
        False, "Delete the topic's segments from the archive when `remote.storage.enable` is turned off."
    )
    remote_storage_enable: bool = setting(
        False,
        """Move sealed segments to the broker's archive (`millstream.archive.url`). Clients read them as
        before. `retention.*` then limits the disk and the archive together; `local.retention.*` limits the
        disk.""",
    )
    retention_bytes: int = setting(
        -1,
        "The largest size of a partition. Beyond it, the broker deletes the oldest segments. -1: no limit.",
        at_least=-1,
    )
    retention_ms: int = setting(
        7 * _DAY_MS, "A segment is deleted when its newest record is older than this. -1: never.", at_least=-1
    )
    segment_bytes: int = setting(
        1_073_741_824,
        "The largest size of a segment. The log starts a new segment before it would exceed this.",
        at_least=1024,
        at_most=_MAX_INT,
    )
    segment_index_bytes: int = setting(
        10_485_760,
        "The log starts a new segment when the current segment's offset index reaches this size.",
        at_least=12,
        at_most=_MAX_INT,
    )
    segment_jitter_ms: int = setting(
        0,
        """The largest random time subtracted from `segment.ms`, so that partitions don't all start new
        segments at once.""",
        at_least=0,
    )
    segment_ms: int = setting(
        7 * _DAY_MS,
        "The log starts a new segment when the current segment's first record is older than this.",
        at_least=1,
    )
    unclean_leader_election_enable: bool = setting(
        False, "Accepted for tools that set it, and ignored: there are no leader elections."
    )
    millstream_max_decompressed_bytes: int = setting(
        104_857_600,
        """The largest size of a compressed batch once its records are decompressed. The broker checks the
        records of every batch before it accepts it, and refuses a batch that exceeds this.""",
        at_least=1_048_576,
        at_most=268_435_456,  # millstream's own readers take no more
    )
    millstream_storage: str = setting(
        "disk",
        """Where records are kept. `disk`: on disk. `memory`: in the broker's memory, and lost when
        the broker stops. The choice is made when the topic is created.""",
        one_of=("disk", "memory"),
        dynamic=False,
    )
    millstream_overload: str = setting(
        "buffer",
        """What happens when producers are faster than consumers. `buffer`: the log grows until retention or
        the disk limits it. `drop`: the log is a ring of `millstream.overload.bytes` and drops its oldest
        records. `backpressure`: the broker holds producers back while a group in
        `millstream.overload.groups` is too far behind.""",
        one_of=("buffer", "drop", "backpressure"),
    )
    millstream_overload_bytes: int = setting(
        67_108_864, "The largest size of a partition with `millstream.overload=drop`.", at_least=65_536
    )
    millstream_overload_groups: tuple[str, ...] = setting(
        (), "The consumer groups that producers wait for with `millstream.overload=backpressure`."
    )
    millstream_overload_lag_records: int = setting(
        100_000,
        """Producers are held back while one of the groups has more than this many records left to read in a
        partition. -1: no limit.""",
        at_least=-1,
    )
    millstream_overload_lag_bytes: int = setting(
        -1,
        "The same limit in bytes. -1: no limit. The limit that is reached first applies.",
        at_least=-1,
    )
    millstream_overload_hold_ms: int = setting(
        10_000,
        """The longest time that the broker holds a produce request. It never holds one for more than half
        of the request's own timeout.""",
        at_least=1,
        at_most=60_000,
    )


def check_overload(config: TopicConfig) -> None:
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
            "remote.storage.enable: a ring (millstream.overload=drop) drops records, so it can't be archived"
        )
    for unit in ("ms", "bytes"):
        local = getattr(config, f"local_retention_{unit}")
        total = getattr(config, f"retention_{unit}")
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
