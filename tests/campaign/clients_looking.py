"""Clients that only read: one follows a topic, one looks up by time, one watches offsets grow."""

from __future__ import annotations

import time
import zlib
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.campaign.clients_common import IMPATIENT, now_ms, stopping
from tests.campaign.coverage import BLOCK
from tests.campaign.journal import Journal


def consumer_of(address: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **IMPATIENT,
            **settings,
        }
    )


def checksum(before: int, value: bytes) -> int:
    """The checksum of a block of records. The beginnings of their values say which records they are."""
    return zlib.crc32(value[:40], before)


def follow(address: str, journal: Journal, options: dict[str, Any]) -> None:
    """Read all partitions of a topic from ``starts`` on; with ``again``, start over at each end. Offsets
    must be consecutive, so this is for topics without transactions and compaction."""
    topic, starts = options["topic"], options["starts"]
    reader = consumer_of(address, journal.life)
    passes = 0
    while not stopping() and (passes == 0 or options.get("again")):
        passes += 1
        reader.assign([TopicPartition(topic, number, start) for number, start in enumerate(starts)])
        following = list(starts)
        sums = [0] * len(starts)
        seen = [0] * len(starts)
        read = 0
        idle_since = time.monotonic()
        while not stopping():
            messages = [m for m in reader.consume(5000, timeout=0.2) if m.error() is None]
            for message in messages:
                partition, offset = message.partition(), message.offset()
                if offset != following[partition]:
                    journal.note(
                        "wrong", f"{topic}-{partition}: {offset} was read, {following[partition]} is next"
                    )
                if offset % BLOCK == 0:
                    sums[partition] = seen[partition] = 0
                sums[partition] = checksum(sums[partition], message.value())
                seen[partition] += 1
                if offset % BLOCK == BLOCK - 1 and seen[partition] == BLOCK:
                    journal.note("digest", topic, partition, offset // BLOCK, sums[partition])
                following[partition] = offset + 1
            read += len(messages)
            if messages:
                idle_since = time.monotonic()
            elif options.get("again") and read and time.monotonic() - idle_since > 1:
                break
        journal.note("tally", "read", read)
    reader.close()


def look_up(address: str, journal: Journal, options: dict[str, Any]) -> None:
    chance = Random(journal.life + str(options["seed"]))
    asking = consumer_of(address, journal.life)
    topic = options["topic"]
    while not stopping():
        partition = chance.randrange(options["partitions"])
        try:
            _, end = asking.get_watermark_offsets(TopicPartition(topic, partition), 5)
            timestamp = now_ms() - chance.choice((0, 1, 10, 100, 1000, 10_000, 60_000))
            asked = [TopicPartition(topic, partition, timestamp)]
            answer = asking.offsets_for_times(asked, 5)[0]
        except KafkaException:
            continue  # the broker is away
        if answer.error is None:
            journal.note("looked up", topic, partition, timestamp, end, max(answer.offset, -1))
            journal.note("tally", "looked up", 1)
        time.sleep(0.005)
    asking.close()


def watch(address: str, journal: Journal, options: dict[str, Any]) -> None:
    """Note where logs start and end, and where groups are, again and again."""
    asking = consumer_of(address, journal.life)
    places = [(topic, number) for topic, count in options["topics"].items() for number in range(count)]
    # A consumer reads its group's offsets here, not librdkafka's admin client: that ends the process if the
    # broker goes away at the wrong moment (confluentinc/librdkafka#4605).
    groups = {
        group: Consumer({"bootstrap.servers": address, "group.id": group, **IMPATIENT})
        for group in options["groups"]
    }
    while not stopping():
        try:
            for topic, number in places:
                low, high = asking.get_watermark_offsets(TopicPartition(topic, number), 5)
                journal.note("seen", topic, number, "start", low, now_ms())
                journal.note("seen", topic, number, "end", high, now_ms())
            for group, member in groups.items():
                for each in member.committed([TopicPartition(*place) for place in places], 5):
                    if each.offset >= 0:
                        name = f"offset of {group}"
                        journal.note("seen", each.topic, each.partition, name, each.offset, now_ms())
        except KafkaException:
            pass  # the broker is away
        time.sleep(0.1)
    for each in (asking, *groups.values()):
        each.close()
