"""Records: written, read, looked up and deleted."""

from __future__ import annotations

import uuid
from typing import Any

from millstream.records.build import Record, build_batch
from tests.support import poison
from tests.support.questions.asker import Questions
from tests.support.wire_client import records

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
DELETE_RECORDS = 21
INIT_PRODUCER = 22
EPOCH_END = 23


def producing(q: Questions) -> None:
    topic = q.topic("written", 2)

    def produce(question: str, data: Any, version: int = 9, **more: Any) -> Any:
        fields = {"acks": 1, "timeout": 5000, "topic_data": data, "transactional_id": None, **more}
        return q.ask(f"produce {version}: {question}", PRODUCE, version, **fields)

    def to(name: str, *partitions: tuple[int, bytes | None]) -> dict[str, Any]:
        return {"name": name, "partition_data": [{"index": p, "records": data} for p, data in partitions]}

    good = records(b"value")
    for version in range(3, 13):
        produce("a record", [to(topic, (0, good))], version)
    produce("nothing", [])
    produce("not there", [to(q.name("no"), (0, good))])
    produce("bad name", [to("a b", (0, good))])
    produce("no such partition", [to(topic, (7, good), (-1, good), (1, good))])
    produce("unknown id", [{"topic_id": uuid.uuid4(), "partition_data": [{"index": 0, "records": good}]}], 13)
    produce("no bytes", [to(topic, (1, b""))])
    produce("half a batch", [to(topic, (1, good[:-3]))])
    produce("two batches", [to(topic, (1, good + good))])
    produce("a flipped bit", [to(topic, (1, good[:-1] + bytes([good[-1] ^ 1])))])
    produce("acks 2", [to(topic, (1, good))], acks=2)
    produce("acks -2", [to(topic, (1, good))], acks=-2)
    produce("acks all", [to(topic, (1, good))], acks=-1)
    produce("no time", [to(topic, (1, good))], timeout=0, acks=-1)
    produce("negative time", [to(topic, (1, good))], timeout=-1)
    small = q.topic("small", max_message_bytes="200")
    produce("too large", [to(small, (0, records(b"x" * 500)))])
    compacted = q.topic("compacted", cleanup_policy="compact")
    produce("without a key", [to(compacted, (0, good))])
    keyed = bytes(build_batch([Record(b"k", b"v")]))
    produce("with a key", [to(compacted, (0, keyed))])
    later = bytes(build_batch([Record(None, b"v", timestamp=2**52)]))
    produce("far in the future", [to(topic, (1, later))])
    negative = bytes(build_batch([Record(None, b"v", timestamp=-1)]))
    produce("without a time", [to(topic, (1, negative))])
    stamped = q.topic("stamped", message_timestamp_type="LogAppendTime")
    produce("stamped by the broker", [to(stamped, (0, good))])
    for about, fields in {
        "a new producer, not from 0": {"producer_id": 7777, "producer_epoch": 0, "base_sequence": 5},
        "no epoch": {"producer_id": 7777, "producer_epoch": -1, "base_sequence": 0},
        "no sequence": {"producer_id": 7777, "producer_epoch": 0, "base_sequence": -1},
        "transactional without an id": {
            "producer_id": 8888,
            "producer_epoch": 0,
            "base_sequence": 0,
            "transactional": True,
        },
    }.items():
        produce(about, [to(topic, (1, records(b"v", **fields)))])
    given = q.ask("init: one who writes", INIT_PRODUCER, 4, transactional_id=None, transaction_timeout=60_000)
    me = {"producer_id": given.producer_id, "producer_epoch": 0}
    produce("its first", [to(topic, (0, records(b"a", b"b", base_sequence=0, **me)))])
    produce("its first again", [to(topic, (0, records(b"a", b"b", base_sequence=0, **me)))])
    produce("a gap", [to(topic, (0, records(b"c", base_sequence=5, **me)))])
    produce("half of the first", [to(topic, (0, records(b"a", base_sequence=0, **me)))])
    produce("its next", [to(topic, (0, records(b"c", base_sequence=2, **me)))])
    older = {**me, "producer_epoch": 1}
    produce("a new epoch, not from 0", [to(topic, (0, records(b"d", base_sequence=3, **older)))])
    produce("a new epoch", [to(topic, (0, records(b"d", base_sequence=0, **older)))])
    produce("the old epoch", [to(topic, (0, records(b"d", base_sequence=3, **me)))])


def producing_poison(q: Questions) -> None:
    """Batches whose records are not what the header says. Kafka takes some that we refuse: with a wrong
    length of a record in a compressed batch, or with wrong offsets in one that is not compressed."""
    topic = q.topic("poisoned")
    for about, (body, count) in poison.BODIES.items():
        for codec in range(5):
            if about.startswith("a record") and codec:
                continue
            data = [{"index": 0, "records": poison.batch_of(body, count, codec)}]
            fields = {"acks": 1, "timeout": 5000, "transactional_id": None}
            question = f"produce 9: {about}, codec {codec}"
            q.ask(question, PRODUCE, 9, topic_data=[{"name": topic, "partition_data": data}], **fields)


def fetching(q: Questions) -> None:
    topic = q.topic("read", 2)
    for value in (b"a", b"b"):
        fields = {"acks": 1, "timeout": 5000, "transactional_id": None}
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records(value, value)}]}]
        q.client.call(PRODUCE, 9, topic_data=data, **fields)

    def fetch(
        question: str, *wanted: dict[str, Any], version: int = 12, name: str = topic, **more: Any
    ) -> Any:
        partitions = [
            {
                "partition": 0,
                "current_leader_epoch": -1,
                "fetch_offset": 0,
                "partition_max_bytes": 100_000,
                **each,
            }
            for each in wanted
        ]
        fields = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "session_epoch": -1,
            "topics": [{"topic": name, "partitions": partitions}],
            **more,
        }
        return q.ask(f"fetch {version}: {question}", FETCH, version, **fields)

    for version in range(4, 13):
        fetch("from 0", {}, version=version)
    for offset in (-1, -2, 3, 4, 5, 2**62):
        fetch(f"from {offset}", {"fetch_offset": offset})
    fetch("no topics", topics=[])
    fetch("not there", {}, name=q.name("no"))
    fetch("bad name", {}, name="a b")
    fetch("no such partition", {"partition": 9}, {"partition": -1}, {"partition": 1})
    fetch("epoch 0", {"current_leader_epoch": 0})
    fetch("epoch 7", {"current_leader_epoch": 7})
    fetch("an older epoch than there is", {"current_leader_epoch": -2})
    fetch("committed only", {}, isolation_level=1)
    fetch("no bytes", {"partition_max_bytes": 0}, max_bytes=0)
    fetch("last epoch seen", {"last_fetched_epoch": 0, "fetch_offset": 2})
    unknown = [
        {
            "topic_id": uuid.uuid4(),
            "partitions": [
                {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
            ],
        }
    ]
    fetch("unknown id", version=13, topics=unknown)
    fetch("a session that is not there", {}, session_id=12345, session_epoch=1)
    fetch("a session's end that is not there", {}, session_id=12345, session_epoch=-1)
    opened = fetch("no session wanted, epoch 1", {}, session_id=0, session_epoch=1)
    assert opened is not None


def looking_up_offsets(q: Questions) -> None:
    topic = q.topic("timed", 2)
    base = 1_700_000_000_000
    batch = bytes(build_batch([Record(None, b"v", timestamp=base + t) for t in (10, 30, 20)]))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    q.client.call(PRODUCE, 9, acks=1, timeout=5000, transactional_id=None, topic_data=data)

    def look(
        question: str, *wanted: dict[str, Any], version: int = 10, name: str = topic, **more: Any
    ) -> None:
        partitions = [
            {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1, **each} for each in wanted
        ]
        fields = {
            "replica_id": -1,
            "timeout": 5000,
            "topics": [{"name": name, "partitions": partitions}],
            **more,
        }
        q.ask(f"offsets {version}: {question}", LIST_OFFSETS, version, **fields)

    for version in range(1, 11):
        look("the end", {}, version=version)
        look("the beginning", {"timestamp": -2}, version=version)
        look("a time", {"timestamp": base + 15}, version=version)
    for timestamp in (-3, -4, -5, -6, -7, -100, 0, base + 30, base + 31):
        about = timestamp - base if timestamp > 0 else timestamp
        look(f"time {about}", {"timestamp": timestamp})
        look(f"time {about}", {"timestamp": timestamp}, version=7)
    look("of an empty partition", *({"partition_index": 1, "timestamp": t} for t in (-1,)))
    for timestamp in (-2, -3, -4, -5, base):
        look(f"time {timestamp} of an empty partition", {"partition_index": 1, "timestamp": timestamp})
    look("no topics", topics=[])
    look("not there", {}, name=q.name("no"))
    look("bad name", {}, name="a b")
    look("no such partition", {"partition_index": 9}, {"partition_index": -1})
    look("twice", {}, {"timestamp": -2})
    look("epoch 0", {"current_leader_epoch": 0})
    look("epoch 7", {"current_leader_epoch": 7})
    look("committed", {}, isolation_level=1)
    look("committed, by time", {"timestamp": base + 15}, isolation_level=1)
    look("as a replica", {}, replica_id=5)
    look("as a debugging replica", {}, replica_id=-2)

    def ends(question: str, version: int = 4, **wanted: Any) -> None:
        each = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0, **wanted}
        name = each.pop("topic", topic)
        fields = {"replica_id": -1, "topics": [{"topic": name, "partitions": [each]}]}
        q.ask(f"epoch's end {version}: {question}", EPOCH_END, version, **fields)

    for version in (2, 3, 4):
        ends("of 0", version)
    for epoch in (1, 7, -1, -2):
        ends(f"of {epoch}", leader_epoch=epoch)
    ends("of 0 in an empty partition", partition=1)
    ends("not there", topic=q.name("no"))
    ends("no such partition", partition=9)
    ends("current 0", current_leader_epoch=0)
    ends("current 5", current_leader_epoch=5)


def deleting_records(q: Questions) -> None:
    topic = q.topic("trimmed")
    compacted = q.topic("compact", cleanup_policy="compact")
    both = q.topic("both", cleanup_policy="compact,delete")
    for name in (topic, compacted, both):
        data = [
            {
                "name": name,
                "partition_data": [{"index": 0, "records": bytes(build_batch([Record(b"k", b"v")] * 4))}],
            }
        ]
        q.client.call(PRODUCE, 9, acks=1, timeout=5000, transactional_id=None, topic_data=data)

    def trim(question: str, name: str, offset: int, partition: int = 0, version: int = 2) -> None:
        topics = [{"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}]
        q.ask(f"trim {version}: {question}", DELETE_RECORDS, version, topics=topics, timeout=5000)

    trim("not there", q.name("no"), 1)
    trim("no such partition", topic, 1, 7)
    trim("bad name", "a b", 1)
    for offset in (-2, 5, 2**62, 1, 0, 2, -1, 4):
        trim(f"to {offset}", topic, offset)
    trim("compacted", compacted, 1)
    trim("compacted and deleted", both, 1)
    trim("an old version", topic, 4, version=0)
    q.ask("trim 2: nothing", DELETE_RECORDS, 2, topics=[], timeout=5000)
