"""Logging in from the command line, at an Apache Kafka that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.apache_kafka import apache_kafka
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable

_USERS = 'PlainLoginModule required username="broker" password="b" user_broker="b" user_anna="secret";'


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A Kafka that lets anna in."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.plaintext.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.{_USERS}",
    }
    try:
        with apache_kafka(settings=settings, quick=True) as kafka:
            yield kafka.address
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


def test_a_user_is_let_in_with_the_right_password_only(guarded: str) -> None:
    millstream = CommandLine(guarded)
    millstream.environment["MILLSTREAM_USER"] = "anna"
    millstream.environment["MILLSTREAM_PASSWORD"] = "secret"
    millstream.ok("topic", "create", "t", "-p", "2")
    millstream.ok("produce", "t", stdin="hello\n")
    assert millstream.ok("consume", "t", "-o", ":end") == "hello\n"
    [topic] = millstream.json("topic", "describe", "t")
    assert sum(partition["bytes"] for partition in topic["partitions"]) > 0

    millstream.environment["MILLSTREAM_PASSWORD"] = "wrong"
    said = millstream.refused("topic", "list")
    assert f"{guarded} refused the log-in" in said
    assert "Authentication failed" in said
