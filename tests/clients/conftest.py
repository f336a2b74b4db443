"""Every client is tried on two brokers: ours, and Apache Kafka where it can be had."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.apache_kafka import apache_kafka
from tests.support.command import CommandLine
from tests.support.maven import JarsUnavailable
from tests.support.serve import ServeProcess


@pytest.fixture(scope="session", params=["ours", "Apache Kafka"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker, shared by the tests: each uses topics and groups of its own."""
    if request.param == "ours":
        with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
            yield broker.address
        return
    try:
        # How often it looks for transactions that timed out: tests need not wait 10 s for that.
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
        with apache_kafka(settings=settings) as kafka:
            yield kafka.address
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def millstream(address: str) -> CommandLine:
    """The ``millstream`` command, pointed at the broker."""
    return CommandLine(address)


@pytest.fixture
def name() -> str:
    """A name that no other test has: for a topic, a group."""
    return f"t-{uuid.uuid4().hex[:12]}"
