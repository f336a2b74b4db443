"""What tasks hand over to the driver: all of it, in each task's order, and nothing of a past attempt."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from millstream.client.text.position import TopicPartition
from millstream.core.errors import BrokerUnavailable, MillstreamError
from millstream.pipeline.run.delivery.handover import HandOver, Receiver, ReceiverAddress

PLACES = (TopicPartition("a", 0), TopicPartition("a", 1))


class Recorder:
    """Takes the place of a sender, whose own ways are tested with brokers."""

    def __init__(self, most: int | None = None) -> None:
        self.sent: list[tuple[TopicPartition, bytes]] = []
        self.flushed = 0
        self._most = most

    def send(self, batches: Iterable[tuple[TopicPartition, bytearray]]) -> None:
        for place, data in batches:
            if len(self.sent) == self._most:
                raise BrokerUnavailable("gone")
            self.sent.append((place, bytes(data)))

    def flush(self) -> None:
        self.flushed = len(self.sent)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as receiver:
        yield receiver


def task(address: ReceiverAddress, name: str, count: int) -> None:
    with closing(HandOver(address)) as driver:
        for number in range(count):
            driver.give(number % 2, bytearray(f"{name} {number}".encode() * 1000))
        driver.finish()


def test_all_that_tasks_hand_over_is_sent_in_the_order_of_each(receiver: Receiver) -> None:
    for _ in range(2):  # batch after batch
        sender = Recorder()
        with receiver.receiving(sender, PLACES) as address:  # type: ignore[arg-type]
            tasks = [threading.Thread(target=task, args=(address, name, 40)) for name in "xyz"]
            for one in tasks:
                one.start()
            for one in tasks:
                one.join()
        assert sender.flushed == len(sender.sent) == 120
        for name in "xyz":
            own = [(place, data) for place, data in sender.sent if data.startswith(name.encode())]
            assert own == [(PLACES[n % 2], f"{name} {n}".encode() * 1000) for n in range(40)]


def test_what_kept_it_from_being_sent_is_what_the_driver_hears(receiver: Receiver) -> None:
    sender = Recorder(most=3)
    with (
        pytest.raises(BrokerUnavailable, match="gone"),
        receiver.receiving(sender, PLACES) as address,  # type: ignore[arg-type]
    ):
        task(address, "x", 10)  # ends badly, as Spark's job then does
    assert sender.flushed == 0


def test_a_task_of_a_past_attempt_is_turned_away(receiver: Receiver) -> None:
    with receiver.receiving(Recorder(), PLACES) as past:  # type: ignore[arg-type]
        pass
    now = Recorder()
    with receiver.receiving(now, PLACES) as address:  # type: ignore[arg-type]
        with pytest.raises((OSError, MillstreamError)):
            task(past, "late", 10)
        task(address, "x", 1)
    assert now.sent == [(PLACES[0], b"x 0" * 1000)]


def test_a_task_that_nobody_waits_for_fails(receiver: Receiver) -> None:
    with receiver.receiving(Recorder(), PLACES) as address:  # type: ignore[arg-type]
        pass
    with pytest.raises((OSError, MillstreamError)):
        task(address, "x", 10)
