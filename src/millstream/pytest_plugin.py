"""A real Kafka broker in your tests, without Docker.

Comes with the package: a test that takes ``millstream_broker`` has one, in memory, empty, for itself alone::

    def test_orders(millstream_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": millstream_broker.address})
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.embedded import Broker


@pytest.fixture
def millstream_broker() -> Iterator[Broker]:
    """A running broker, in memory; ``.address`` is what clients connect to."""
    with Broker() as broker:
        yield broker
