"""A consumer in a group, as a process that tests start, stop and kill.

    python -m tests.support.group_member ADDRESS GROUP TOPIC STRATEGY [INSTANCE]

Prints a line for each record once it is processed and its offset is about to be committed, so that what was
printed was processed; commits what it printed every now and then, and when it is told to stop (SIGTERM).
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException


def main(address: str, group: str, topic: str, strategy: str, instance: str = "") -> None:
    settings = {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": 2000,
        "heartbeat.interval.ms": 200,
    }
    if instance:
        settings["group.instance.id"] = instance
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    uncommitted = False
    try:
        while not stopping:
            messages = [m for m in consumer.consume(50, timeout=0.1) if m.error() is None]
            for message in messages:
                print(message.partition(), message.offset(), message.value().decode())
            sys.stdout.flush()
            uncommitted = uncommitted or bool(messages)
            if uncommitted:
                try:
                    consumer.commit(asynchronous=False)
                    uncommitted = False
                except KafkaException as error:
                    # A rebalance came between: whoever has the partition now reads these again. If it is
                    # this member, which kept it, nobody does: so they are committed next time round.
                    if error.args[0].code() in (KafkaError._NO_OFFSET,):
                        uncommitted = False
                        continue
                    print(f"commit: {error}", file=sys.stderr)
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
