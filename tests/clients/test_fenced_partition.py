"""One partition that several processes write, one at a time; on our broker and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema as Confluents
from confluent_kafka.schema_registry import SchemaRegistryClient

from millstream.client.connect import Connection
from millstream.client.protocol.fenced_partition import FencedPartition, Record
from millstream.client.text.position import TopicPartition
from millstream.core.errors import BrokerUnavailable, ProducerFenced, RequestFailed
from millstream.registry.schema import Schema
from millstream.registry.service.registrar import Registrar
from millstream.registry.service.running import Registry
from millstream.registry.service.schema_topic import SchemaTopic
from tests.support.serve import ServeProcess
from tests.support.topics import create_topic

Make = Callable[[], FencedPartition]


@pytest.fixture
def make(address: str, name: str) -> Iterator[Make]:
    topic = create_topic(address, name, partitions=1)
    with ExitStack() as stack:

        def partition() -> FencedPartition:
            made = FencedPartition(Connection(address), TopicPartition(topic, 0), f"{topic}-writer")
            stack.callback(made.close)
            return made

        yield partition


def record(text: str) -> Record:
    return Record(b"k", text.encode(), (), 1)


def read(partition: FencedPartition) -> list[str]:
    return [(each.value or b"").decode() for batch in partition.catch_up() for each in batch]


def test_who_takes_over_fences_whoever_wrote_before(make: Make) -> None:
    one, two = make(), make()
    one.take_over()
    one.append([record("a"), record("b")])
    one.append([record("c")])
    two.take_over()
    assert read(two) == ["a", "b", "c"]
    with pytest.raises(ProducerFenced):
        one.append([record("lost")])
    assert not one.writes
    two.append([record("d")])
    assert read(two) == ["d"]
    assert read(one) == ["a", "b", "c", "d"], "nothing of what was refused"


def test_of_many_who_count_none_counts_on_what_is_old(make: Make) -> None:
    """Each reads the last number and writes the next; a number twice, or one left out, is a race."""

    def count() -> None:
        partition = make()
        last, written = 0, 0
        while written < 10:
            if not partition.writes:
                partition.take_over()
            for batch in partition.catch_up():
                last = int((batch[-1].value or b"").decode())
            try:
                partition.append([record(str(last + 1))])
                written += 1
            except RequestFailed:
                continue  # fenced, or it is not known whether it was committed: reading tells

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(count) for _ in range(3)]:
            done.result(120)
    assert read(make()) == [str(number) for number in range(1, 31)]


def test_registries_on_one_topic_know_what_the_others_were_told(address: str, name: str) -> None:
    with (
        Registry(address, topic=name) as one,
        Registry(address, topic=name) as two,
        SchemaRegistryClient({"url": one.url}) as here,
        SchemaRegistryClient({"url": two.url}) as there,
    ):
        for number, (writer, reader) in enumerate([(here, there), (there, here), (here, there)]):
            text = f'{{"type":"fixed","name":"F{number}","size":1}}'
            id_ = writer.register_schema(f"s{number}", Confluents(text, "AVRO"))
            assert id_ == number + 1
            assert reader.get_schema(id_).schema_str == text


def test_a_registry_outlives_its_brokers_absence(tmp_path: Path) -> None:
    schema = Schema("AVRO", '"int"')
    with ServeProcess(tmp_path / "data") as broker:
        schemas = SchemaTopic(Connection(broker.address, patience=0.5), timeout=0.5)
        registrar = Registrar(schemas.store)
        schemas.start()
        assert schemas.change(lambda: registrar.register("s", schema)).result(90)["id"] == 1
        broker.kill()
        refused = schemas.change(lambda: registrar.register("t", schema)).exception(30)
        assert "no broker answers" in str(refused)
        assert registrar.by_id(1).text == '"int"', "what is known is still told"
        broker.start()
        assert schemas.change(lambda: registrar.register("t", schema)).result(90)["id"] == 1
        schemas.stop()
    with pytest.raises(BrokerUnavailable):
        SchemaTopic(Connection("127.0.0.1:1"), timeout=0.2).start()
