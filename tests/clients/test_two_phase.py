"""Transactions that are prepared now and decided later (KIP-939); Apache Kafka 4.3 does not offer it yet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import client
from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import TransactionClient
from millstream.client.two_phase import Outcome, Token
from millstream.core.errors import ConfigError, RequestFailed, TransactionDecided
from tests.clients.test_python_transactions import texts
from tests.support.serve import ServeProcess
from tests.support.topics import create_topic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def prepare(broker: ServeProcess, name: str, topic: str, *values: str) -> Token:
    with client.TwoPhase(broker.address, name) as txn:
        for value in values:
            txn.send(topic, value)
        return txn.prepare()


def test_what_is_prepared_is_seen_when_it_is_committed(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name)
    token = prepare(broker, name, topic, "a", "b")
    (found,) = [entry for entry in client.list_prepared(broker.address) if entry[0] == token]
    assert found[1].held_back == 2
    assert client.commit_prepared(broker.address, str(token)) is Outcome.COMMITTED
    assert texts(broker.address, topic) == ["a", "b"]


def test_large_transactions_go_out_in_batches_and_keys_where_they_belong(
    broker: ServeProcess, name: str
) -> None:
    topic = create_topic(broker.address, name, 3)
    with client.TwoPhase(broker.address, name) as txn:
        for number in range(3000):
            txn.send(topic, f"{number}".zfill(500), key=f"key {number % 7}", headers=[("n", "1")])
        txn.send(topic, "last", partition=2)
        token = txn.prepare()
        assert txn.prepare() == token
    client.commit_prepared(broker.address, token)
    seen = texts(broker.address, topic)
    assert sorted(seen) == sorted([*(f"{number}".zfill(500) for number in range(3000)), "last"])
    with client.transaction(broker.address, f"{name}-other") as other:
        other.send(topic, "same", key="key 3")
    same = seen.index("3".zfill(500))
    with client.transaction(broker.address, f"{name}-r", topics=[topic], group=name, most=10_000) as txn_read:
        by_value = {message.value(): message.partition() for message in txn_read.records}
    assert by_value[b"same"] == by_value[seen[same].encode()], "librdkafka sends the key there, too"


def test_left_without_preparing_it_is_aborted(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name)
    with client.TwoPhase(broker.address, name) as txn:
        txn.send(topic, "a")
    with pytest.raises(ZeroDivisionError), client.TwoPhase(broker.address, name) as txn:
        txn.send(topic, str(1 / 0))
    assert texts(broker.address, topic) == []
    assert [token for token, _ in client.list_prepared(broker.address) if token[0] == name] == []
    token = prepare(broker, name, topic, "b")
    assert client.abort_prepared(broker.address, token) is Outcome.ABORTED


def test_it_survives_restarts_and_has_no_timeout(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data", settings={"transaction.max.timeout.ms": "1000"}) as broker:
        topic = create_topic(broker.address)
        first, second = (prepare(broker, name, topic, name) for name in ("first", "second"))
        for _ in range(2):
            broker.kill()
            broker.start()
        assert {token for token, _ in client.list_prepared(broker.address)} == {first, second}
        assert client.commit_prepared(broker.address, second) is Outcome.COMMITTED
        broker.kill()
        broker.start()
        assert client.commit_prepared(broker.address, second) is Outcome.COMMITTED_BEFORE
        assert client.abort_prepared(broker.address, first) is Outcome.ABORTED
        assert texts(broker.address, topic) == ["second"]


def test_a_decision_can_be_repeated_and_not_be_changed(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name)
    token = prepare(broker, name, topic, "a")
    assert client.commit_prepared(broker.address, token) is Outcome.COMMITTED
    assert client.commit_prepared(broker.address, token) is Outcome.COMMITTED_BEFORE
    with pytest.raises(TransactionDecided, match="was committed; it can't be aborted"):
        client.abort_prepared(broker.address, token)
    token = prepare(broker, name, topic, "b")
    assert client.abort_prepared(broker.address, token) is Outcome.ABORTED
    assert client.abort_prepared(broker.address, token) is Outcome.ABORTED_BEFORE
    with pytest.raises(TransactionDecided, match="was aborted; its records are gone"):
        client.commit_prepared(broker.address, token)
    assert texts(broker.address, topic) == ["a"]


def test_an_old_token_does_no_harm_to_a_later_transaction(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name, 1)
    old = prepare(broker, name, topic, "old")
    client.commit_prepared(broker.address, old)
    with client.TwoPhase(broker.address, name) as txn:
        txn.send(topic, "new", partition=0)
        txn._send_batch(next(iter(txn._waiting)))
        txn._sender.flush()  # type: ignore[union-attr]
        for decide in (client.abort_prepared, client.commit_prepared):
            with pytest.raises(TransactionDecided, match="no longer knows how it ended"):
                decide(broker.address, old)
        txn.send(topic, "and more", partition=0)
        new = txn.prepare()
    assert client.commit_prepared(broker.address, new) is Outcome.COMMITTED
    assert texts(broker.address, topic) == ["old", "new", "and more"]


@pytest.mark.parametrize("first", ["commit", "abort"])
@pytest.mark.parametrize("second", ["commit", "abort", "write and die"])
def test_how_a_later_transaction_ended_is_not_told_of_an_earlier_one(
    broker: ServeProcess, name: str, first: str, second: str
) -> None:
    decide = {"commit": client.commit_prepared, "abort": client.abort_prepared}
    topic = create_topic(broker.address, name)
    old = prepare(broker, name, topic, "old")
    decide[first](broker.address, old)
    if second in decide:
        decide[second](broker.address, prepare(broker, name, topic, "new"))
    else:
        with pytest.raises(ZeroDivisionError), client.TwoPhase(broker.address, name) as txn:
            txn.send(topic, str(1 / 0))
    for again in decide.values():
        with pytest.raises(TransactionDecided, match="no longer knows how it ended"):
            again(broker.address, old)


def test_who_was_refused_or_died_between_does_not_hide_how_it_ended(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name)
    token = prepare(broker, name, topic, "a")
    cluster = Cluster(Connection.of(broker.address))
    TransactionClient(cluster).init(name, 60_000, enable_2pc=True, keep_prepared=True)  # and died
    cluster.close()
    for _ in range(3):
        with pytest.raises(ConfigError, match="decide it first"):
            prepare(broker, name, topic, "b")
    assert client.commit_prepared(broker.address, token) is Outcome.COMMITTED
    assert client.commit_prepared(broker.address, token) is Outcome.COMMITTED_BEFORE
    with pytest.raises(TransactionDecided, match="was committed"):
        client.abort_prepared(broker.address, token)


def test_several_who_decide_at_once_agree(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name)
    for _ in range(3):
        token = prepare(broker, name, topic, "a")
        with ThreadPoolExecutor(3) as threads:
            outcomes = list(threads.map(partial(client.commit_prepared, broker.address), [token] * 3))
        assert Outcome.COMMITTED in outcomes
        assert set(outcomes) <= {Outcome.COMMITTED, Outcome.COMMITTED_BEFORE}
        assert client.commit_prepared(broker.address, token) is Outcome.COMMITTED_BEFORE
    assert texts(broker.address, topic) == ["a"] * 3


def test_a_second_transaction_is_refused_while_one_is_undecided(broker: ServeProcess, name: str) -> None:
    topic = create_topic(broker.address, name)
    token = prepare(broker, name, topic, "a")
    with pytest.raises(ConfigError, match=f"decide it first.*the token {token}"):
        prepare(broker, name, topic, "b")
    assert client.commit_prepared(broker.address, token) is Outcome.COMMITTED


def test_what_is_asked_wrongly_is_said(broker: ServeProcess, name: str) -> None:
    for decide in (client.abort_prepared, client.commit_prepared):
        with pytest.raises(TransactionDecided, match="not open"):
            decide(broker.address, Token(name, 1, 2))
    with client.TwoPhase(broker.address, name) as txn:
        with pytest.raises(RequestFailed, match="there is no topic 'nowhere'"):
            txn.send("nowhere", "a")
        txn.prepare()
        with pytest.raises(ConfigError, match=r"before prepare\(\)"):
            txn.send("nowhere", "a")
    with pytest.raises(ConfigError, match="within the block"):
        client.TwoPhase(broker.address, name).send("x", "y")
    with pytest.raises(ConfigError, match="needs a transactional id"):
        client.TwoPhase(broker.address, "")


@given(st.text(min_size=1), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_a_token_is_kept_as_text(name: str, producer: int, epoch: int) -> None:
    token = Token(name, producer, epoch)
    if name == name.lstrip():
        assert Token.parse(f"{token}\n") == token


@pytest.mark.parametrize("text", ["", "a", "a:1", ":1:2", "a:b:c", "a:1:-2", "a:1:²"])
def test_other_text_is_no_token(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a token"):
        Token.parse(text)
