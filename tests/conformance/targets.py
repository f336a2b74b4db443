"""Starts the brokers that suites run against, one for each suite, with the settings that it expects."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.suite import Suite, Target
from tests.support.apache_kafka import apache_kafka
from tests.support.serve import ServeProcess


@contextmanager
def millstream(suite: Suite) -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        settings = {"node.id": str(suite.node_id), **suite.settings}
        with ServeProcess(Path(scratch) / "data", host=suite.host, settings=settings) as broker:
            yield Target("millstream", suite.host, broker.port)
        bugs = [line for line in broker.logged().splitlines() if " ERROR " in line or "Traceback" in line]
        if bugs:
            raise AssertionError("the broker logged errors:\n" + "\n".join(bugs[:20]))


@contextmanager
def kafka(suite: Suite) -> Iterator[Target]:
    advertised = f"PLAINTEXT://{suite.host}:{{port}},CONTROLLER://127.0.0.1:{{controller}}"
    settings = {"node.id": str(suite.node_id), "advertised.listeners": advertised, **suite.settings}
    with apache_kafka(settings=settings) as broker:
        yield Target("kafka", suite.host, int(broker.address.rpartition(":")[2]))


TARGETS = {"millstream": millstream, "kafka": kafka}
