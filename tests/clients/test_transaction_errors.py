"""What a transactional producer is told, request by request and version by version: the same by our broker
and by Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.waiting import wait_for
from tests.support.wire_client import PRODUCE, WireClient, answer, produce, records

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS, DESCRIBE = 22, 24, 25, 26, 28, 65
# While a coordinator loads, the last transaction is ended, or the topic (whose partition 0 is looked at)
# is being created: a client asks again.
PASSING = {3, 14, 15, 16, 51}


class Who(NamedTuple):
    producer_id: int
    epoch: int

    def next(self, count: int = 1) -> Who:
        return self._replace(epoch=self.epoch + count)


class Producer:
    """A transactional producer of raw requests, on one topic of two partitions."""

    def __init__(self, client: WireClient, name: str) -> None:
        self.client = client
        self.name = name

    def settled(self, api_key: int, version: int, code: Any, **fields: Any) -> Any:
        """The answer that is not passing; ``code`` finds the error in it."""
        found: list[Any] = []

        def asked() -> bool:
            found[:] = [self.client.call(api_key, version, **fields)]
            return code(found[0]).value not in PASSING

        wait_for(asked, timeout=90)
        return found[0]

    def init(self, version: int = 4, **fields: Any) -> tuple[int, Who]:
        given = {"transactional_id": self.name, "transaction_timeout": 60_000, **fields}
        found = self.settled(INIT, version, lambda a: a.error_code, **given)
        return found.error_code.value, Who(found.producer_id, found.producer_epoch)

    def start(self, **fields: Any) -> Who:
        code, who = self.init(**fields)
        assert code == 0
        return who

    def write(
        self, who: Who, sequence: int = 0, *, version: int = 12, index: int = 0, name: str | None = ""
    ) -> int:
        found: list[int] = []
        batch = records(
            transactional=True, producer_id=who.producer_id, producer_epoch=who.epoch, base_sequence=sequence
        )

        def asked() -> bool:
            self.client.send(
                produce(
                    1, self.name, index, batch=batch, version=version, acks=-1,
                    transactional_id=self.name if name == "" else name,
                )
            )  # fmt: skip
            parsed = answer(PRODUCE, version, self.client.receive())[1]
            found[:] = [parsed.responses[0].partition_responses[0].error_code.value]
            return found[0] not in {*PASSING, 19, 6}  # 6: the topic is being created

        wait_for(asked, timeout=90)
        return found[0]

    def add(self, who: Who, version: int = 3, *indexes: int) -> list[int]:
        found = self.settled(
            ADD_PARTITIONS,
            version,
            lambda a: next(
                each.partition_error_code
                for each in a.results_by_topic_v3_and_below[0].results_by_partition
                if each.partition_index == 0
            ),
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[{"name": self.name, "partitions": list(indexes or (0,))}],
        )
        (topic,) = found.results_by_topic_v3_and_below
        results = sorted(topic.results_by_partition, key=lambda each: each.partition_index)
        return [each.partition_error_code.value for each in results]

    def add_group(self, who: Who, version: int = 3) -> int:
        found = self.settled(
            ADD_OFFSETS,
            version,
            lambda a: a.error_code,
            transactional_id=self.name,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=self.name,
        )
        return int(found.error_code.value)

    def commit_offset(self, who: Who, version: int = 5, **fields: Any) -> int:
        given = {
            "transactional_id": self.name,
            "group_id": self.name,
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": self.name,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 7,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
            **fields,
        }
        found = self.settled(OFFSETS, version, lambda a: a.topics[0].partitions[0].error_code, **given)
        return int(found.topics[0].partitions[0].error_code.value)

    def end(self, who: Who, *, commit: bool = True, version: int = 5) -> tuple[int, Who]:
        found = self.settled(
            END,
            version,
            lambda a: a.error_code,
            transactional_id=self.name,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        given = Who(getattr(found, "producer_id", -1), getattr(found, "producer_epoch", -1))
        return found.error_code.value, given


@pytest.fixture
def producer(address: str, name: str) -> Iterator[Producer]:
    with WireClient(address) as client:
        client.create_topic(name, 2)
        # The first to ask for a coordinator has its topic created in Apache Kafka.
        wait_for(lambda: client.call(10, 2, key=name, key_type=0).error_code.value == 0, timeout=60)
        wait_for(lambda: client.call(10, 2, key=name, key_type=1).error_code.value == 0, timeout=60)
        yield Producer(client, name)


def test_the_second_protocol_from_end_to_end(producer: Producer) -> None:
    me = producer.start()
    assert producer.write(me) == 0
    assert producer.write(me, index=1) == 0
    assert producer.commit_offset(me) == 0
    code, after = producer.end(me)
    assert (code, after) == (0, me.next())
    assert producer.end(me) == (0, after)  # sent twice
    assert producer.end(me, commit=False)[0] == 48
    assert producer.write(me, 1) == 47  # a late record
    assert producer.commit_offset(me) == 47
    assert producer.end(after)[0] == 48  # nothing was begun
    assert producer.end(after, commit=False) == (0, after.next())
    assert producer.end(after, commit=False) == (0, after.next())
    assert producer.write(after.next()) == 0
    assert producer.end(after, commit=False)[0] == 90  # of the last transaction, and this one is open
    assert producer.end(after.next(), commit=False) == (0, after.next(2))


def test_the_first_protocol_from_end_to_end(producer: Producer) -> None:
    me = producer.start()
    assert producer.write(me, version=9) == 48
    assert producer.add(me) == [0]
    assert producer.write(me, version=9) == 0
    assert producer.write(me, version=9, index=1) == 48
    assert producer.add(me, 3, 0, 1) == [0, 0]
    assert producer.commit_offset(me, 3) == 48
    assert producer.commit_offset(me, 4) == 120
    assert producer.add_group(me) == 0
    assert producer.commit_offset(me, 3) == 0
    assert producer.end(me, version=3)[0] == 0
    assert producer.end(me, version=3)[0] == 0
    assert producer.end(me, version=3, commit=False)[0] == 48
    assert producer.write(me, 1, version=11) == 120
    assert producer.add(me) == [0]
    assert producer.write(me, 1, version=10) == 0
    assert producer.end(me, version=4, commit=False)[0] == 0
    assert producer.end(me, version=4)[0] == 48


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_fenced_producer_is_told_in_words_that_it_knows(producer: Producer, version: int) -> None:
    me = producer.start()
    assert producer.add(me) == [0]
    assert producer.write(me, version=9) == 0
    other = producer.start()  # which aborts what is open
    assert other.producer_id == me.producer_id
    assert other.epoch > me.epoch
    fenced = 90 if version >= 2 else 47
    assert producer.end(me, version=version)[0] == fenced
    assert producer.add(me, version) == [fenced]
    assert producer.add_group(me, version) == fenced
    assert producer.write(me, 1, version=9) == 47
    assert producer.write(me, 1) == 47
    assert producer.commit_offset(me, 3) == 47
    assert producer.end(me)[0] == 90


def test_a_producer_that_says_who_it_is(producer: Producer) -> None:
    me = producer.start()

    def again(version: int) -> tuple[int, Who]:
        return producer.init(version, producer_id=me.producer_id, producer_epoch=me.epoch)

    assert again(4) == (0, me.next())
    assert again(4) == (0, me.next())
    producer.start()
    assert again(4)[0] == 90
    assert again(3)[0] == 47
    assert producer.init(4, producer_id=me.producer_id + 1000, producer_epoch=0)[0] == 90
    assert producer.init(4, producer_id=5, producer_epoch=-1)[0] == 42


def test_strangers(producer: Producer) -> None:
    nobody = Who(123_456, 0)
    assert producer.end(nobody)[0] == 49
    assert producer.add(nobody) == [49]
    assert producer.add_group(nobody) == 49
    assert producer.commit_offset(nobody) == 49
    assert producer.write(nobody) == 49
    me = producer.start()
    other = me._replace(producer_id=me.producer_id + 1000)
    assert producer.end(other)[0] == 49
    assert producer.write(other) == 49
    assert producer.write(me.next()) == 47
    assert producer.end(me.next())[0] == 90
    assert producer.add(me, 3, 0, 9) == [55, 3]
    assert producer.write(me, name=None) == 53


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, 42),
        ({"transaction_timeout": 0}, 50),
        ({"transaction_timeout": 900_001}, 50),
    ],
)
def test_what_init_refuses(producer: Producer, fields: dict[str, Any], code: int) -> None:
    assert producer.init(4, **fields) == (code, Who(-1, -1))


def test_a_member_that_its_group_does_not_know(producer: Producer) -> None:
    me = producer.start()
    assert producer.commit_offset(me, generation_id=3, member_id="m") == 22
    assert producer.commit_offset(me, group_id="") == 24
    assert producer.commit_offset(me) == 0
    assert producer.commit_offset(me, generation_id=3, member_id="m") == 25


def test_states_as_an_administrator_sees_them(producer: Producer) -> None:
    def state(name: str) -> tuple[int, str, list[tuple[str, list[int]]]]:
        (found,) = producer.client.call(DESCRIBE, 0, transactional_ids=[name]).transaction_states
        topics = [(t.topic, sorted(t.partitions)) for t in found.topics]
        return found.error_code.value, found.transaction_state, topics

    me = producer.start()
    producer.write(me, index=1)
    assert state(producer.name) == (0, "Ongoing", [(producer.name, [1])])
    producer.end(me)
    wait_for(lambda: state(producer.name) == (0, "CompleteCommit", []))
