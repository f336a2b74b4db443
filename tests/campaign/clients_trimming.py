"""Delete the oldest records of a topic, up to a random offset, again and again (DeleteRecords)."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.campaign.clients_common import IMPATIENT, stopping
from tests.campaign.clients_looking import consumer_of
from tests.campaign.journal import Journal


def trim(address: str, journal: Journal, options: dict[str, Any]) -> None:
    chance = Random(journal.life + str(options["seed"]))
    topic = options["topic"]
    admin = AdminClient({"bootstrap.servers": address, **IMPATIENT})
    asking = consumer_of(address, journal.life)
    while not stopping():
        partition = chance.randrange(options["partitions"])
        try:
            low, high = asking.get_watermark_offsets(TopicPartition(topic, partition), 5)
            target = chance.randint(low, high)
            journal.note("trimming", topic, partition, target)
            for done in admin.delete_records([TopicPartition(topic, partition, target)]).values():
                start = done.result(10).low_watermark
                if start < target:
                    journal.note("wrong", f"{topic}-{partition}: trimmed to {target}, starts at {start}")
                journal.note("trimmed", topic, partition, target)
                journal.note("tally", "trims", 1)
        except (KafkaException, TimeoutError):
            continue  # the broker is away; the trim may have happened
        time.sleep(chance.uniform(0, 0.3))
    asking.close()
