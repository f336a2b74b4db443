"""Our own connections against real brokers: retries that append once, TLS, SASL."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.protocol.sender import BatchSender
from millstream.client.text.position import TopicPartition
from millstream.core.errors import BrokerUnavailable, MillstreamError, RequestFailed
from millstream.records.columns.arrow import Encoder
from tests.support.apache_kafka import ApacheKafka, apache_kafka, free_port
from tests.support.maven import JarsUnavailable
from tests.support.proxy import Proxy
from tests.support.topics import consume, create_topic


def numbered(first: int, count: int) -> Iterator[bytearray]:
    """Small batches of ten records with numbers as values."""
    column = pa.array([b"%06d" % number for number in range(first, first + count)])
    for batch, _ in Encoder(column).batches(np.arange(count, dtype=np.int32), max_bytes=61 + 140):
        yield batch


def test_questions_about_groups_outlive_connections_to_their_coordinator() -> None:
    """librdkafka's admin client ends the process where a coordinator is lost at the wrong moment."""
    port = free_port()
    with Proxy() as proxy, Broker(port=port, advertised_listener=proxy.address):
        proxy.forward_to(f"127.0.0.1:{port}")
        place = TopicPartition(create_topic(proxy.address), 0)
        with Admin(Connection(proxy.address)) as admin:
            admin.commit("readers", {place: 0})
            for cut in range(8):  # wherever it falls: in the versions, the coordinator, the answer
                proxy.cut_after(cut)
                admin.commit("readers", {place: cut})
                assert admin.committed("readers") == {place: cut}
                assert [group.name for group in admin.groups()] == ["readers"]
                assert admin.group("readers").state == "Empty"
                assert proxy.cuts == cut + 1
            assert admin.delete_groups(["readers"]) == {"readers": None}


@pytest.mark.parametrize("answers", [0, 1, 3, 7])
def test_what_is_sent_again_after_a_lost_answer_is_appended_once(answers: int) -> None:
    port = free_port()
    with Proxy() as proxy, Broker(port=port, advertised_listener=proxy.address):
        proxy.forward_to(f"127.0.0.1:{port}")
        topic = create_topic(proxy.address, partitions=2)
        sender = BatchSender(Cluster(Connection(proxy.address)))
        zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
        sender.send((zero, batch) for batch in numbered(0, 50))
        sender.flush()
        proxy.cut_after(answers)
        for first in range(50, 550, 50):
            pairs = zip(numbered(first, 50), numbered(first, 50), strict=True)
            sender.send(both for a, b in pairs for both in ((zero, a), (one, b)))
        sender.flush()
        assert proxy.cuts == 1
        found = consume(proxy.address, topic)
    for partition, first in ((0, 0), (1, 50)):
        numbers = [int(record.value or b"") for where, record in found if where == partition]
        assert numbers == list(range(first, 550))


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        topic = create_topic(broker.address, partitions=1)
        port = int(broker.address.rpartition(":")[2])
        cluster = Cluster(Connection(broker.address))
        partition = TopicPartition(topic, 0)
        sender = BatchSender(cluster)
        sender.send((partition, batch) for batch in numbered(0, 50))
        sender.flush()
    with Broker(tmp_path, port=port) as broker:
        sender.send((partition, batch) for batch in numbered(50, 50))
        sender.flush()
        assert cluster.ends([partition], EARLIEST) == {partition: 0}
        assert cluster.ends([partition], LATEST) == {partition: 100}
        numbers = [int(record.value or b"") for _, record in consume(broker.address, topic, 1)]
        assert numbers == list(range(100))


def test_a_producer_the_broker_forgot_goes_on_under_a_new_id() -> None:
    with Broker() as broker:
        topic = create_topic(broker.address, partitions=1)
        sender = BatchSender(Cluster(Connection(broker.address)))
        partition = TopicPartition(topic, 0)
        sender.send((partition, batch) for batch in numbered(0, 50))
        sender.flush()
        sender._sequences[partition] = 777  # what the broker has never seen, as after its state expired
        sender.send((partition, batch) for batch in numbered(50, 50))
        sender.flush()
        numbers = [int(record.value or b"") for _, record in consume(broker.address, topic, 1)]
        assert numbers == list(range(100))


def test_a_refusal_that_no_retry_helps_is_raised_with_kafkas_name() -> None:
    with Broker() as broker:
        topic = create_topic(broker.address, config={"max.message.bytes": "100"})
        sender = BatchSender(Cluster(Connection(broker.address)))
        sender.send([(TopicPartition(topic, 0), next(numbered(0, 10)))])
        with pytest.raises(RequestFailed, match="MESSAGE_TOO_LARGE") as refused:
            sender.flush()
    assert refused.value.code == 10
    assert sender.failed


def test_nobody_at_the_address_is_said_once_patience_runs_out() -> None:
    cluster = Cluster(Connection("127.0.0.1:1"), patience=0.1)
    with pytest.raises(BrokerUnavailable, match=r"no broker answers at 127\.0\.0\.1:1"):
        cluster.topics()


# TLS ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    directory = tmp_path_factory.mktemp("tls")
    chain, key = directory / "certificate.pem", directory / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


@pytest.fixture
def tls_address(certificate: tuple[Path, Path]) -> Iterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    port = free_port()
    with Proxy(context) as proxy, Broker(port=port, advertised_listener=proxy.address):
        proxy.forward_to(f"127.0.0.1:{port}")
        yield proxy.address


def test_tls_is_spoken_and_the_certificate_checked(tls_address: str, certificate: tuple[Path, Path]) -> None:
    options = {"security.protocol": "ssl", "ssl.ca.location": str(certificate[0])}
    cluster = Cluster(Connection(tls_address, options))
    assert cluster.partitions_of("made", create=True) == 1
    sender = BatchSender(cluster)
    partition = TopicPartition("made", 0)
    sender.send((partition, batch) for batch in numbered(0, 500))
    sender.flush()
    assert cluster.ends([partition], LATEST) == {partition: 500}
    cluster.close()


def test_a_certificate_of_nobody_we_know_is_refused_at_once(tls_address: str) -> None:
    with pytest.raises(BrokerUnavailable, match=r"not trusted.*ssl\.ca\.location"):
        Cluster(Connection(tls_address, {"security.protocol": "ssl"})).topics()
    unchecked = {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}
    assert Cluster(Connection(tls_address, unchecked)).topics() == {}


def test_tls_to_a_broker_without_it_is_said_so() -> None:
    with Broker() as broker:
        cluster = Cluster(Connection(broker.address, {"security.protocol": "ssl"}), patience=0.1)
        with pytest.raises(MillstreamError, match=r"security\.protocol|no broker answers"):
            cluster.topics()


# SASL ---------------------------------------------------------------------------------------------------

PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret" user_admin="admin-secret" user_ada="ada-secret";'
)
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@pytest.fixture(scope="module")
def sasl_kafka() -> Iterator[ApacheKafka]:
    listener = "SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    settings = {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_LOGIN,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
    }
    try:
        with apache_kafka(settings=settings, quick=True) as kafka:
            yield kafka
    except JarsUnavailable as problem:
        pytest.skip(str(problem))


def sasl(mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_plain_lets_us_in_and_keeps_others_out(sasl_kafka: ApacheKafka) -> None:
    good = Cluster(Connection(sasl_kafka.address, sasl("PLAIN", "ada", "ada-secret")))
    assert good.topics() == {}
    good.close()
    bad = Cluster(Connection(sasl_kafka.address, sasl("PLAIN", "ada", "wrong")))
    with pytest.raises(BrokerUnavailable, match="refused the log-in"):
        bad.topics()


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256), ("SCRAM-SHA-512", ScramMechanism.SCRAM_SHA_512)],
)
def test_scram_lets_us_in_and_keeps_others_out(
    sasl_kafka: ApacheKafka, name: str, mechanism: ScramMechanism
) -> None:
    admin = AdminClient({"bootstrap.servers": sasl_kafka.address, **sasl("PLAIN", "admin", "admin-secret")})
    user = f"user,of={name}"
    credential = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"scram-secret")
    for done in admin.alter_user_scram_credentials([credential]).values():
        done.result(60)
    good = Cluster(Connection(sasl_kafka.address, sasl(name, user, "scram-secret")))
    assert good.topics() == {}
    good.close()
    bad = Cluster(Connection(sasl_kafka.address, sasl(name, user, "wrong")))
    with pytest.raises(BrokerUnavailable, match="refused the log-in"):
        bad.topics()


def test_a_mechanism_the_broker_does_not_offer_is_said(kafka_without_sasl: str) -> None:
    cluster = Cluster(Connection(kafka_without_sasl, sasl("PLAIN", "a", "b")), patience=0.1)
    with pytest.raises(MillstreamError):
        cluster.topics()


@pytest.fixture
def kafka_without_sasl() -> Iterator[str]:
    with Broker() as broker:
        yield broker.address
