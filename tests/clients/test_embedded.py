"""A broker inside one's own process: settings, why it may not start, and what it tells those who watch."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import millstream
from millstream.core.errors import ConfigError, DataDirectoryError
from millstream.core.log_output import JsonFormatter, RateLimited
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for
from tests.support.wire_client import METADATA, WireClient, produce, records


def test_the_fixture_gives_a_broker_that_works(millstream_broker: millstream.Broker) -> None:
    producer = Producer({"bootstrap.servers": millstream_broker.address})
    producer.produce("t", b"hello")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": millstream_broker.address, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert wait_for(lambda: consumer.poll(0.5)).value() == b"hello"
    consumer.close()


def test_settings_are_given_with_underscores_and_checked() -> None:
    with millstream.Broker(num_partitions=4, topic={"retention.ms": "1000"}) as broker:
        assert broker.config.topic.retention_ms == 1000
        with WireClient(broker.address) as client:
            found = client.call(METADATA, 12, topics=[{"name": "t"}], allow_auto_topic_creation=True)
            assert len(found.topics[0].partitions) == 4
    with pytest.raises(ConfigError, match=r"did you mean 'num\.partitions'"):
        millstream.Broker(num_partition=4)
    with pytest.raises(ConfigError, match="whole number from 1"):
        millstream.Broker(num_partitions=0)


def test_several_brokers_in_one_process_do_not_share_anything() -> None:
    with millstream.Broker() as one, millstream.Broker() as two:
        with WireClient(one.address) as client:
            client.create_topic("only-here")
        with WireClient(two.address) as client:
            assert client.call(METADATA, 12, topics=None).topics == ()


def test_stopping_twice_does_nothing_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    broker = millstream.Broker().start()
    assert "millstream-broker" in {t.name for t in set(threading.enumerate()) - before}
    broker.stop()
    broker.stop()
    # The first broker in a process loads schemas, on a thread that ends by itself.
    wait_for(lambda: not set(threading.enumerate()) - before, what="its threads have ended")
    with pytest.raises(RuntimeError, match="already been started"):
        broker.start()


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with millstream.Broker() as broker:
        port = int(broker.address.split(":")[1])
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use; stop what uses it"):
            millstream.Broker(port=port).start()


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"is not HOST:PORT|is not a port"):
        millstream.Broker(listen=address).start()


def test_two_brokers_on_one_directory_are_impossible(tmp_path: Path) -> None:
    with millstream.Broker(tmp_path), pytest.raises(DataDirectoryError, match=f"process {os.getpid()}"):
        millstream.Broker(tmp_path).start()
    with millstream.Broker(tmp_path):
        pass


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError, match="can't use the data directory"):
        millstream.Broker(tmp_path / "file").start()


def test_a_log_of_no_known_topic_is_set_aside_and_kept(tmp_path: Path) -> None:
    with millstream.Broker(tmp_path) as broker, WireClient(broker.address) as client:
        client.create_topic("known")
    stray = tmp_path / "stray-0"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"precious")
    with millstream.Broker(tmp_path) as broker, WireClient(broker.address) as client:
        assert [t.name for t in client.call(METADATA, 12, topics=None).topics] == ["known"]
    assert not stray.exists()
    (aside,) = tmp_path.glob("stray-0.*-stray")
    assert (aside / "00000000000000000000.log").read_bytes() == b"precious"


def test_one_connection_too_many_is_refused_and_the_others_stay() -> None:
    with millstream.Broker(max_connections=2) as broker:
        with WireClient(broker.address) as one, WireClient(broker.address) as two:
            assert one.call(18, 0).api_keys
            assert two.call(18, 0).api_keys
            with WireClient(broker.address) as three:
                assert three.is_closed()
            assert one.call(18, 0).api_keys
        with WireClient(broker.address) as again:
            wait_for(lambda: again.call(18, 0).api_keys)


def get(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://{address}{path}", method=method)
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_health_are_told_over_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with ServeProcess(tmp_path, settings={"http.listen": address}) as server:
        with WireClient(server.address) as client:
            client.create_topic("t", 2)
            for acks in (1, -1):
                client.send(produce(1, "t", batch=records(b"a", b"b", b"c"), acks=acks))
                client.receive()
            client.send(b"\xff\xff\xff\xff")
            assert client.is_closed()
        assert get(address, "/healthz") == (200, "ok\n")
        assert get(address, "/readyz") == (200, "ready\n")
        assert get(address, "/nothing")[0] == 404
        assert get(address, "/metrics", "POST")[0] == 405
        assert get(address, "/metrics", "HEAD") == (200, "")
        status, text = get(address, "/metrics")
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values['millstream_requests_total{api="Produce"}']) == 2
    assert float(values['millstream_requests_total{api="CreateTopics"}']) == 1
    assert float(values['millstream_topic_records_total{topic="t"}']) == 6
    assert float(values['millstream_topic_received_bytes_total{topic="t"}']) > 100
    assert float(values['millstream_partition_end_offset{partition="0",topic="t"}']) == 6
    assert float(values['millstream_partition_unsynced_records{partition="0",topic="t"}']) == 0
    assert float(values["millstream_protocol_errors_total"]) == 1
    assert float(values["millstream_sync_seconds_count"]) >= 1
    assert float(values["millstream_sent_bytes_total"]) > 0


def test_a_bad_address_for_http_is_refused_and_the_port_is_free_again() -> None:
    in_use = r"http\.listen: port \d+ on 127\.0\.0\.1 is in use"
    with millstream.Broker() as other, pytest.raises(ConfigError, match=in_use):
        millstream.Broker(http_listen=other.address).start()


def test_log_lines_for_machines_are_json() -> None:
    record = logging.LogRecord("millstream.x", logging.WARNING, "f", 1, "said %s", ("ä",), None)
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"]) == ("warning", "millstream.x", "said ä")
    assert line["time"].endswith("Z")


def test_a_flood_of_complaints_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    complaints = RateLimited(logging.getLogger("flood"))
    for number in range(1000):
        complaints.warning("kind", "number %d", number)
        complaints.warning("other", "another")
    assert len(caplog.records) == 2 * RateLimited.FIRST
