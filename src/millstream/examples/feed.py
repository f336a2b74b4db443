"""Send a generator's events to a broker: each when it is due, or all as fast as possible.

``python generate.py --broker 127.0.0.1:9092``, in an example or in a copy of one, runs ``main``.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence

from millstream.client.connect import DEFAULT_ADDRESS, Connection
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.core.errors import MillstreamError
from millstream.examples.example import Event, Generator


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Feed(threading.Thread):
    """Produces events on its own thread, and counts them.

    In one second it sends ``speed`` seconds of events. Events from before the generator's start are sent at
    once. If ``speed`` is None, all events are.
    """

    def __init__(self, connection: Connection, generator: Generator, *, speed: float | None = 1.0) -> None:
        super().__init__(name="generator", daemon=True)
        self.generator = generator
        self.until_ms = 0  # the time of the last event
        self.error: Exception | None = None
        self._connection = connection
        self._speed = speed
        self._senders: dict[str, RecordSender] = {}
        self._ended = threading.Event()

    @property
    def sent(self) -> int:
        return sum(sender.sent for sender in list(self._senders.values()))

    def sent_to(self, topic: str) -> int:
        return self._senders[topic].sent if topic in self._senders else 0

    def end(self) -> None:
        """Stop producing, and wait until the broker has everything."""
        self._ended.set()
        self.join(10)

    def run(self) -> None:
        began = time.monotonic()
        try:
            for event in self.generator.events():
                if self._wait(event, began):
                    break
                self.until_ms = event.at_ms
                self._produce(event)
            for sender in self._senders.values():
                if not sender.finish(10) or sender.failing():
                    raise sender.first_failure or MillstreamError(
                        f"the broker at {self._connection.address} did not accept all records within 10 s"
                    )
        except Exception as error:
            self.error = error

    def _wait(self, event: Event, began: float) -> bool:
        """Wait until the event is due. True if the feed has to end."""
        if self._speed is not None:
            due = began + (event.at_ms - self.generator.start_ms) / 1000 / self._speed
            wait = due - time.monotonic()
            if wait > 0 and self._ended.wait(wait):
                return True
        return self._ended.is_set()

    def _produce(self, event: Event) -> None:
        self._send(event.topic, event.value, event.key, event.at_ms)

    def _send(self, topic: str, value: bytes | None, key: str, at_ms: int) -> None:
        if topic not in self._senders:
            self._senders[topic] = RecordSender(self._connection, topic, acks="1")
        self._senders[topic].send([Outgoing(value, key.encode(), timestamp=at_ms)])


def main(make: Callable[..., Generator], arguments: Sequence[str] | None = None) -> None:
    """Run from the command line: produce a generator's events until they end, or until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Produce generated events to a broker, until Ctrl-C.")
    parser.add_argument("--broker", default=DEFAULT_ADDRESS, help=f"the broker [{DEFAULT_ADDRESS}]")
    parser.add_argument("--seed", type=int, default=7, help="another seed gives other events [7]")
    parser.add_argument("--seconds", type=float, help="stop after this many seconds of events")
    parser.add_argument(
        "--speed", type=float, default=1.0, help="seconds of events per second; 0: as fast as possible [1]"
    )
    given = parser.parse_args(arguments)
    connection = Connection.of(given.broker)
    feed = Feed(
        connection,
        make(seed=given.seed, start_ms=now_ms(), seconds=given.seconds),
        speed=given.speed or None,
    )
    try:
        connection.check()
        feed.start()
        while feed.is_alive():
            feed.join(0.2)
    except MillstreamError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        feed.end()
    if feed.error is not None:
        sys.exit(f"error: {feed.error}")
    print(f"{feed.sent:,} events, {len(feed.generator.planted):,} planted among them")
