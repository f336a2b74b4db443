"""The protocol as a client sees it on the wire: what brokers have got wrong before, pinned."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from millstream import Broker
from millstream.broker.api.handlers import HANDLERS
from millstream.records.build import read_batches
from millstream.wire.api_keys import PRIVATE
from tests.support.wire_client import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WireClient,
    answer,
    fetch,
    produce,
    records,
    request,
)

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_REQUIRED_ACKS = 1, 3, 17, 21
UNSUPPORTED_VERSION, INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 35, 42, 74, 75
INVALID_RECORD, UNKNOWN_TOPIC_ID = 87, 100
DESCRIBE_TOPIC_PARTITIONS, OFFSET_FOR_LEADER_EPOCH = 75, 23


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(auto_create_topics_enable=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.address) as client:
        yield client


@pytest.fixture
def topic(client: WireClient) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 3)
    return name


def produced(client: WireClient, data: bytes, version: int = 9) -> Any:
    client.send(data)
    return answer(PRODUCE, version, client.receive())[1].responses[0].partition_responses[0]


def fetched(client: WireClient, data: bytes, version: int = 12) -> Any:
    client.send(data)
    return answer(FETCH, version, client.receive())[1].responses[0].partitions[0]


def values(partition: Any) -> list[bytes | None]:
    return [record.value for record in read_batches(partition.records)]


def topic_id(client: WireClient, name: str) -> uuid.UUID:
    found = client.call(METADATA, 12, topics=[{"name": name}]).topics[0].topic_id
    assert isinstance(found, uuid.UUID)
    return found


# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_every_request_served_is_announced(client: WireClient, version: int) -> None:
    found = client.call(API_VERSIONS, version, client_software_name="test", client_software_version="1")
    assert found.error_code.value == 0
    announced = {k.api_key: (k.min_version, k.max_version) for k in found.api_keys}
    assert announced.keys() == HANDLERS.keys() - PRIVATE.keys()
    for key, versions in announced.items():
        assert versions == (0 if key == PRODUCE else HANDLERS[key].first, HANDLERS[key].last)


def test_produce_is_announced_from_0_or_librdkafka_stops_compressing(client: WireClient) -> None:
    found = client.call(API_VERSIONS, 0)
    assert next(k.min_version for k in found.api_keys if k.api_key == PRODUCE) == 0


@pytest.mark.parametrize("version", [5, 99])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    client: WireClient, version: int
) -> None:
    ask = bytearray(request(API_VERSIONS, 4, 7, client_software_name="new", client_software_version="9"))
    ask[6:8] = version.to_bytes(2, "big")
    client.send(bytes(ask))
    correlation_id, found = answer(API_VERSIONS, 0, client.receive())
    assert (correlation_id, found.error_code.value) == (7, UNSUPPORTED_VERSION)
    assert {k.api_key for k in found.api_keys} == HANDLERS.keys() - PRIVATE.keys()
    assert client.call(API_VERSIONS, 4, client_software_name="n", client_software_version="9").api_keys


def test_no_feature_is_announced_that_does_not_work(client: WireClient) -> None:
    found = client.call(API_VERSIONS, 4, client_software_name="n", client_software_version="9")
    features = {"group.version", "share.version", "transaction.version"}
    assert {feature.name for feature in found.supported_features} == features
    assert {(each.name, each.max_version_level) for each in found.finalized_features} == {
        ("group.version", 1),
        ("share.version", 1),
        ("transaction.version", 2),
    }


# Metadata


def test_metadata_of_all_topics_and_of_none(client: WireClient, topic: str) -> None:
    assert topic in {t.name for t in client.call(METADATA, 0, topics=[]).topics}
    assert topic in {t.name for t in client.call(METADATA, 12, topics=None).topics}
    assert client.call(METADATA, 12, topics=[]).topics == ()


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_the_leader_of_every_partition(
    client: WireClient, broker: Broker, topic: str, version: int
) -> None:
    found = client.call(METADATA, version, topics=[{"name": topic}])
    host, port = broker.address.split(":")
    assert [(b.node_id, b.host, b.port) for b in found.brokers] == [(0, host, int(port))]
    (described,) = found.topics
    assert described.error_code.value == 0
    assert [(p.partition_index, p.leader_id, p.replica_nodes) for p in described.partitions] == [
        (n, 0, (0,)) for n in range(3)
    ]
    if version >= 1:
        assert found.controller_id == 0
    if version >= 2:
        assert found.cluster_id


def test_a_topic_is_created_only_if_the_client_allows_it(client: WireClient) -> None:
    name = f"auto-{uuid.uuid4().hex[:8]}"
    found = client.call(METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    assert found.topics[0].error_code.value == UNKNOWN_TOPIC_OR_PARTITION
    found = client.call(METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=True)
    assert found.topics[0].error_code.value == 0
    assert len(found.topics[0].partitions) == 1


def test_a_topic_is_created_only_if_the_broker_allows_it() -> None:
    with Broker(auto_create_topics_enable=False) as broker, WireClient(broker.address) as client:
        found = client.call(METADATA, 12, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        assert found.topics[0].error_code.value == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(client: WireClient, name: str) -> None:
    for allowed in (True, False):
        found = client.call(METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=allowed)
        assert found.topics[0].error_code.value == INVALID_TOPIC
        assert found.topics[0].name == name


def test_topics_are_found_by_id(client: WireClient, topic: str) -> None:
    known, unknown = topic_id(client, topic), uuid.uuid4()
    found = client.call(
        METADATA, 12, topics=[{"topic_id": known, "name": None}, {"topic_id": unknown, "name": None}]
    )
    assert [(t.error_code.value, t.name, t.topic_id) for t in found.topics] == [
        (0, topic, known),
        (UNKNOWN_TOPIC_ID, None, unknown),
    ]


def test_many_clients_creating_one_topic_at_once_all_get_it(broker: Broker) -> None:
    name = f"race-{uuid.uuid4().hex[:8]}"
    clients = [WireClient(broker.address) for _ in range(8)]
    for client in clients:
        client.send(request(METADATA, 12, 1, topics=[{"name": name}], allow_auto_topic_creation=True))
    found = [answer(METADATA, 12, client.receive())[1].topics[0] for client in clients]
    assert {(t.error_code.value, len(t.partitions)) for t in found} == {(0, 1)}
    assert len({t.topic_id for t in found}) == 1
    for client in clients:
        client.socket.close()


def test_partitions_are_described_a_page_at_a_time(client: WireClient) -> None:
    names = sorted(f"page-{uuid.uuid4().hex[:8]}" for _ in range(3))
    for name in names:
        client.create_topic(name, 3)
    pages, cursor = [], None
    while True:
        found = client.call(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": name} for name in reversed(names)],
            response_partition_limit=2,
            cursor=cursor,
        )
        pages.append([(t.name, p.partition_index) for t in found.topics for p in t.partitions])
        if found.next_cursor is None:
            break
        cursor = {
            "topic_name": found.next_cursor.topic_name,
            "partition_index": found.next_cursor.partition_index,
        }
    assert all(len(page) <= 2 for page in pages)
    assert [found for page in pages for found in page] == [
        (name, index) for name in names for index in range(3)
    ]


def test_describing_a_topic_that_is_not_there_says_so(client: WireClient) -> None:
    found = client.call(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": "nowhere"}, {"name": "a/b"}],
        response_partition_limit=9,
    )
    assert [(t.name, t.error_code.value) for t in found.topics] == [("a/b", INVALID_TOPIC), ("nowhere", 3)]


# Produce


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_of_produce_appends(client: WireClient, topic: str, version: int) -> None:
    by_id = topic_id(client, topic)
    for expected in range(3):  # the first is read in full, the others by their shape
        client.send(
            request(
                PRODUCE,
                version,
                1,
                acks=-1 if expected == 2 else 1,
                timeout=1000,
                topic_data=[
                    {
                        "name": topic,
                        "topic_id": by_id,
                        "partition_data": [{"index": 1, "records": records(b"v")}],
                    }
                ],
            )
        )
        (of_topic,) = answer(PRODUCE, version, client.receive())[1].responses
        (partition,) = of_topic.partition_responses
        assert (partition.index, partition.error_code.value, partition.base_offset) == (1, 0, expected)
        assert (of_topic.topic_id == by_id) if version >= 13 else (of_topic.name == topic)
        if version >= 5:
            assert partition.log_start_offset == 0
        assert partition.log_append_time is None


def test_acks_other_than_0_1_and_all_are_refused(client: WireClient, topic: str) -> None:
    assert produced(client, produce(1, topic, acks=2)).error_code.value == INVALID_REQUIRED_ACKS


def test_records_for_several_partitions_are_answered_together(client: WireClient, topic: str) -> None:
    client.send(produce(1, topic, 0, 2, 9, 1))
    partitions = answer(PRODUCE, 9, client.receive())[1].responses[0].partition_responses
    assert [(p.index, p.error_code.value, p.base_offset) for p in partitions] == [
        (0, 0, 0),
        (2, 0, 0),
        (9, UNKNOWN_TOPIC_OR_PARTITION, -1),
        (1, 0, 0),
    ]
    assert "no partition 9" in partitions[2].error_message


def test_an_unknown_topic_is_refused_by_name_and_by_id(client: WireClient) -> None:
    assert produced(client, produce(1, "nowhere")).error_code.value == UNKNOWN_TOPIC_OR_PARTITION
    data = request(
        PRODUCE, 13, 1, acks=1, timeout=1000,
        topic_data=[{"topic_id": uuid.uuid4(), "partition_data": [{"index": 0, "records": records()}]}],
    )  # fmt: skip
    assert produced(client, data, 13).error_code.value == UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (records() + records(), INVALID_RECORD),
        (records()[:-1], INVALID_RECORD),
        (b"", INVALID_RECORD),
        (records()[:-1] + b"\xff", 2),
        (bytes(100), INVALID_RECORD),
    ],
)
def test_what_is_not_one_whole_batch_is_refused_and_says_why(
    client: WireClient, topic: str, batch: bytes, code: int
) -> None:
    refused = produced(client, produce(1, topic, batch=batch))
    assert refused.error_code.value == code
    assert refused.error_message
    assert produced(client, produce(1, topic)).base_offset == 0


@pytest.mark.parametrize("version", [9, 12])
def test_a_transactional_producer_writes_by_the_short_way_and_the_long_one(
    client: WireClient, topic: str, version: int
) -> None:
    """A request like the last one up to the partition is not read in full: the checks are the same."""
    name = f"tx-{topic}"
    init = client.call(22, 4, transactional_id=name, transaction_timeout=60_000)
    me = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}

    def write(sequence: int, **changes: Any) -> Any:
        batch = records(transactional=True, base_sequence=sequence, **{**me, **changes})
        data = produce(1, topic, 0, batch=batch, version=version, acks=-1, transactional_id=name)
        return produced(client, data, version)

    if version < 12:
        refused = write(0)
        assert (refused.error_code.value, "not added" in refused.error_message) == (48, True)
        added = client.call(
            24,
            3,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=me["producer_id"],
            v3_and_below_producer_epoch=me["producer_epoch"],
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.value == 0
    for sequence in range(3):
        assert write(sequence).error_code.value == 0
    assert write(2).base_offset == 2  # sent twice, kept once
    assert write(0, producer_epoch=me["producer_epoch"] + 1).error_code.value == 47
    assert write(0, producer_id=me["producer_id"] + 1).error_code.value == 49
    assert write(3).error_code.value == 0
    plain = produced(client, produce(1, topic, batch=records(transactional=True, base_sequence=4, **me)))
    assert plain.error_code.value == 53


def test_log_append_time_is_in_the_answer_and_in_the_records(client: WireClient) -> None:
    name = f"lat-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 1, message_timestamp_type="LogAppendTime")
    time = produced(client, produce(1, name)).log_append_time
    assert time is not None
    (record,) = read_batches(fetched(client, fetch(1, name)).records)
    assert record.timestamp == round(time.timestamp() * 1000)


def test_a_topic_deleted_and_created_again_under_a_producer_is_another_topic(
    client: WireClient, topic: str
) -> None:
    assert produced(client, produce(1, topic)).base_offset == 0
    assert produced(client, produce(1, topic)).base_offset == 1
    client.call(20, 4, topic_names=[topic], timeout=5000)
    assert produced(client, produce(1, topic)).error_code.value == UNKNOWN_TOPIC_OR_PARTITION
    client.create_topic(topic, 1)
    assert produced(client, produce(1, topic)).base_offset == 0


# Fetch


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_reads(client: WireClient, topic: str, version: int) -> None:
    by_id = topic_id(client, topic)
    produced(client, produce(1, topic, batch=records(b"a", b"b")))
    wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
    partition = fetched(
        client,
        request(
            FETCH, version, 1, replica_id=-1, max_wait=0, min_bytes=1, max_bytes=1000,
            topics=[{"topic": topic, "topic_id": by_id, "partitions": [wanted]}],
        ),
        version,
    )  # fmt: skip
    assert (partition.error_code.value, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert values(partition) == [b"a", b"b"]
    assert partition.aborted_transactions is None


def test_an_offset_inside_a_batch_gives_the_batch_that_holds_it(client: WireClient, topic: str) -> None:
    produced(client, produce(1, topic, batch=records(b"a", b"b", b"c")))
    produced(client, produce(1, topic, batch=records(b"d")))
    assert values(fetched(client, fetch(1, topic, 1))) == [b"a", b"b", b"c", b"d"]
    assert values(fetched(client, fetch(1, topic, 3))) == [b"d"]


@pytest.mark.parametrize("limit", [{"max_bytes": 1}, {"max_bytes": 0}])
def test_at_least_one_batch_comes_even_if_it_is_larger_than_every_limit(
    client: WireClient, topic: str, limit: dict[str, int]
) -> None:
    produced(client, produce(1, topic, batch=records(b"a" * 5000)))
    produced(client, produce(1, topic, batch=records(b"b")))
    assert values(fetched(client, fetch(1, topic, **limit))) == [b"a" * 5000]


def test_the_limit_of_a_partition_cuts_after_whole_batches_for_the_reader(
    client: WireClient, topic: str
) -> None:
    for _ in range(5):
        produced(client, produce(1, topic, batch=records(b"a" * 100)))
    size = len(records(b"a" * 100))
    wanted = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": int(2.5 * size),
    }  # fmt: skip
    found = fetched(client, fetch(1, topic, topics=[{"topic": topic, "partitions": [wanted]}]))
    assert len(found.records) <= int(2.5 * size)
    assert values(found) == [b"a" * 100] * 2


def test_only_the_first_partition_with_records_may_pass_the_limit(client: WireClient, topic: str) -> None:
    client.send(produce(1, topic, 0, 1, 2, batch=records(b"v" * 1000)))
    client.receive()
    wanted = [
        {"partition": p, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 10_000}
        for p in (2, 0, 1)
    ]
    client.send(fetch(1, topic, max_bytes=500, topics=[{"topic": topic, "partitions": wanted}]))
    partitions = answer(FETCH, 12, client.receive())[1].responses[0].partitions
    assert [(p.partition_index, len(values(p))) for p in partitions] == [(2, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize("offset", [-1, 3, 2**60])
def test_an_offset_that_is_not_there_is_out_of_range(client: WireClient, topic: str, offset: int) -> None:
    produced(client, produce(1, topic, batch=records(b"a", b"b")))
    found = fetched(client, fetch(1, topic, offset, wait=20_000))
    assert (found.error_code.value, found.high_watermark) == (OFFSET_OUT_OF_RANGE, -1)
    assert fetched(client, fetch(1, topic, 2)).error_code.value == 0


def test_the_leader_epoch_a_reader_believes_in_is_checked(client: WireClient, topic: str) -> None:
    produced(client, produce(1, topic))
    assert fetched(client, fetch(1, topic, current_leader_epoch=0)).error_code.value == 0
    found = fetched(client, fetch(1, topic, current_leader_epoch=7, wait=20_000))
    assert found.error_code.value == UNKNOWN_LEADER_EPOCH


def test_an_unknown_topic_id_is_told_in_its_place(client: WireClient) -> None:
    unknown = uuid.uuid4()
    wanted = {"partition": 3, "fetch_offset": 0, "partition_max_bytes": 1000}
    client.send(
        request(FETCH, 13, 1, replica_id=-1, max_wait=20_000, min_bytes=1, max_bytes=1000, session_epoch=-1,
                topics=[{"topic_id": unknown, "partitions": [wanted]}])
    )  # fmt: skip
    (of_topic,) = answer(FETCH, 13, client.receive())[1].responses
    assert of_topic.topic_id == unknown
    assert [(p.partition_index, p.error_code.value) for p in of_topic.partitions] == [(3, UNKNOWN_TOPIC_ID)]


def test_read_committed_gets_a_list_of_aborted_transactions_even_if_it_is_empty(
    client: WireClient, topic: str
) -> None:
    produced(client, produce(1, topic))
    found = fetched(client, fetch(1, topic, isolation_level=1))
    assert (values(found), found.aborted_transactions) == ([b"x"], ())


def test_a_session_tells_only_what_is_new(client: WireClient, topic: str) -> None:
    def ask(session: int, epoch: int, partitions: tuple[int, ...] = (), **fields: Any) -> Any:
        wanted = [
            {
                "partition": p,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "partition_max_bytes": 10_000,
            }
            for p, offset in fields.pop("at", [(p, 0) for p in partitions])
        ]
        topics = [{"topic": topic, "partitions": wanted}] if wanted else []
        client.send(fetch(1, topic, topics=topics, session_id=session, session_epoch=epoch, **fields))
        return answer(FETCH, 12, client.receive())[1]

    def told(found: Any) -> list[tuple[int, int]]:
        return [(p.partition_index, len(values(p))) for t in found.responses for p in t.partitions]

    produced(client, produce(1, topic))
    first = ask(0, 0, (0, 1, 2))
    assert first.session_id > 0
    assert told(first) == [(0, 1), (1, 0), (2, 0)]
    assert told(ask(first.session_id, 1, at=[(0, 1)])) == []
    produced(client, produce(1, topic, 2))
    assert told(ask(first.session_id, 2)) == [(2, 1)]
    assert told(ask(first.session_id, 3, at=[(2, 1)])) == []
    forgetting = ask(first.session_id, 4, forgotten_topics_data=[{"topic": topic, "partitions": [1, 2]}])
    assert told(forgetting) == []
    produced(client, produce(1, topic, 1))
    assert told(ask(first.session_id, 5)) == []
    wrong = ask(first.session_id, 9)
    assert (wrong.error_code.value, wrong.responses) == (71, ())
    assert ask(12345, 1).error_code.value == 70
    closed = ask(first.session_id, -1, (0,))
    assert (closed.session_id, told(closed)) == (0, [(0, 1)])
    assert ask(first.session_id, 6).error_code.value == 70


def test_in_a_session_each_partition_has_its_turn_to_come_first(client: WireClient, topic: str) -> None:
    client.send(produce(1, topic, 0, 1, 2, batch=records(b"v" * 2000)))
    client.receive()
    wanted = [
        {"partition": p, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 10_000}
        for p in range(3)
    ]
    seen: list[int] = []
    session, epoch = 0, 0
    for _ in range(3):
        topics = [{"topic": topic, "partitions": wanted}] if epoch == 0 else []
        client.send(fetch(1, topic, topics=topics, session_id=session, session_epoch=epoch, max_bytes=100))
        found = answer(FETCH, 12, client.receive())[1]
        session, epoch = found.session_id, epoch + 1
        seen += [p.partition_index for t in found.responses for p in t.partitions if p.records]
    assert sorted(seen) == [0, 1, 2]


# ListOffsets and OffsetForLeaderEpoch


def offset_of(client: WireClient, topic: str, timestamp: int, version: int = 10, **fields: Any) -> Any:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp, **fields}
    found = client.call(
        LIST_OFFSETS, version, replica_id=-1, topics=[{"name": topic, "partitions": [wanted]}]
    )
    return found.topics[0].partitions[0]


def test_offsets_are_found_by_time(client: WireClient, topic: str) -> None:
    from millstream.records.build import Record, build_batch

    base = 1_700_000_000_000
    for times in ((10, 20), (50, 30), (40,)):
        batch = bytes(build_batch([Record(None, b"v", timestamp=base + t) for t in times]))
        produced(client, produce(1, topic, batch=batch))
    assert (offset_of(client, topic, -1).offset, offset_of(client, topic, -2).offset) == (5, 0)
    assert offset_of(client, topic, -1).timestamp == -1
    largest = offset_of(client, topic, -3)
    assert (largest.offset, largest.timestamp) == (2, base + 50)
    for timestamp, expected in ((base, 0), (base + 10, 0), (base + 11, 1), (base + 21, 2), (base + 50, 2)):
        assert offset_of(client, topic, timestamp).offset == expected
    assert offset_of(client, topic, base + 51).offset == -1
    assert offset_of(client, topic, -4).offset == 0
    assert offset_of(client, topic, -5).offset == -1


def test_list_offsets_checks_what_it_is_asked(client: WireClient, topic: str) -> None:
    assert offset_of(client, topic, -1, current_leader_epoch=4).error_code.value == UNKNOWN_LEADER_EPOCH
    assert offset_of(client, "nowhere", -1).error_code.value == UNKNOWN_TOPIC_OR_PARTITION
    twice = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    found = client.call(LIST_OFFSETS, 10, topics=[{"name": topic, "partitions": [twice, twice]}])
    assert {p.error_code.value for p in found.topics[0].partitions} == {INVALID_REQUEST}


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets_finds_the_end(client: WireClient, topic: str, version: int) -> None:
    produced(client, produce(1, topic))
    assert offset_of(client, topic, -1, version).offset == 1


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch_is_known(client: WireClient, topic: str, version: int) -> None:
    produced(client, produce(1, topic))

    def end_of(epoch: int, current: int = -1) -> tuple[int, int, int]:
        wanted = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        found = client.call(
            OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=[{"topic": topic, "partitions": [wanted]}]
        )
        partition = found.topics[0].partitions[0]
        return partition.error_code.value, partition.leader_epoch, partition.end_offset

    assert end_of(0) == (0, 0, 1)
    assert end_of(5) == (0, -1, -1)
    assert end_of(0, current=5)[0] == UNKNOWN_LEADER_EPOCH
