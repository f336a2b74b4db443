"""A real Kafka broker in your tests, without Docker; and pipelines, without a broker.

The plugin comes with the package. A test that takes ``millstream_broker`` has its own, empty, in memory::

    def test_orders(millstream_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": millstream_broker.address})

``millstream_registry`` is a schema registry for that broker, with a ``.url``.

``millstream_driver`` makes drivers for pipelines, and closes them after the test::

    def test_alerts(millstream_driver):
        driver = millstream_driver("fraud.py")
        driver.feed("payments", {"card": "c1", "eur": 900})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import millstream.pipeline  # noqa: F401  (modules of tests may declare UDFs before any session)
from millstream.embedded import Broker

if TYPE_CHECKING:
    from millstream.registry.service.running import Registry
    from millstream.testing import Driver


@pytest.fixture
def millstream_broker() -> Iterator[Broker]:
    """A running broker, in memory. Clients connect to its ``.address``."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def millstream_registry(millstream_broker: Broker) -> Iterator[Registry]:
    """A schema registry for ``millstream_broker``. Clients connect to its ``.url``."""
    from millstream.registry.service.running import Registry

    with Registry(millstream_broker.address) as registry:
        yield registry


@pytest.fixture
def millstream_driver() -> Iterator[Callable[..., Driver]]:
    """Makes a ``millstream.testing.Driver`` for a topology or its file, and closes it when the test ends."""
    from millstream.testing import Driver

    with ExitStack() as drivers:

        def make(flow: Any, **how: Any) -> Driver:
            return drivers.enter_context(Driver(flow, **how))

        yield make
