"""Examples on Spark find what they find in the test driver: all that was planted, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.examples.catalogue import find
from millstream.examples.feed import Feed
from millstream.pipeline.dsl.load import load_topology
from tests.support.jobs import records


@pytest.mark.parametrize("name", ["factory", "intrusion", "search"])
def test_what_was_planted_is_found_on_spark(
    name: str, run: Callable[..., Any], millstream_broker: Broker
) -> None:
    example = find(name)
    generator = example.generator(seed=11, seconds=example.seconds)
    connection = Connection(millstream_broker.address)
    flow = load_topology(example.pipeline)
    with Admin(connection) as admin:
        for source in flow.sources:
            admin.create_topic(source.topic, partitions=example.partitions)
    feed = Feed(connection, generator, speed=None)
    feed.run()
    assert feed.error is None
    run(flow)
    results = {
        topic: [json.loads(record.value()) for record in records(millstream_broker, topic)]
        for topic in example.results
    }
    scores = example.check(generator.planted, results)
    assert example.reached(scores), scores
