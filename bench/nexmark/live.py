"""Events as they happen, and the time from each to its answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.nexmark import generator

_LONGEST_S = 180.0  # until a contestant must have given its first answer
_SETTLE_S = 5.0  # after it, before answers count: what had piled up is caught up with
_AFTER_S = 10.0  # how long an answer is waited for
_TEN = 10_000


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def due(query: str, row: dict[str, Any], lateness_ms: int) -> int:
    """When the answer could be known, in milliseconds: with its latest event, or when its window is over."""
    if query in ("q5", "q11"):
        return _ms(row["endtime"]) + lateness_ms
    if query == "q7":
        return (_ms(row["dateTime"]) // _TEN + 1) * _TEN + lateness_ms
    if query == "q8":
        return _ms(row["starttime"]) + _TEN + lateness_ms
    if query == "q20":
        return max(_ms(row["bid_dateTime"]), _ms(row["auction_dateTime"]))
    return _ms(row["bid_dateTime" if query == "q9" else "dateTime"])


def latencies(
    address: str,
    query: str,
    prefix: str,
    output: str,
    *,
    rate: int,
    partitions: int,
    seconds: float,
    lateness_ms: int,
    alive: Callable[[], bool],
) -> list[float]:
    """Milliseconds from each event, or the end of its window, to its answer, over ``seconds`` once answers
    come at all. Of an event with several answers, as when it moves others down, the first counts."""
    stop = threading.Event()
    sending = threading.Thread(target=_send, args=(address, prefix, rate, partitions, stop), daemon=True)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nexmark-latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(output, number, 0) for number in range(partitions)])
    sending.start()
    first_answer: dict[tuple[Any, ...], float] = {}
    began = time.time()
    start: float | None = None
    try:
        while alive() and time.time() - (start or began) < (
            _LONGEST_S if start is None else seconds + _AFTER_S
        ):
            message = consumer.poll(0.1)  # one by one: to ask for many is to wait for many
            now = 1000 * time.time()
            if message is None or message.error() is not None or message.value() is None:
                continue
            row = json.loads(message.value())
            start = start or now / 1000 + _SETTLE_S
            known = due(query, row, lateness_ms)
            if 1000 * start <= known < 1000 * (start + seconds):
                who = tuple(row.get(name) for name in ("auction", "bidder", "id", "category"))
                first_answer.setdefault((known, *who), now - known)
    finally:
        stop.set()
        sending.join()
        consumer.close()
    return list(first_answer.values())


def _send(address: str, prefix: str, rate: int, partitions: int, stop: threading.Event) -> None:
    """Events at their times, from now on."""
    client = Producer({"bootstrap.servers": address, "linger.ms": 0})
    settings = generator.Settings(rate=rate, start_ms=int(1000 * time.time()))
    for chunk in generator.chunks(int(rate * (_LONGEST_S + 120)), settings):
        rows = []
        for kind, table in chunk.items():
            times = table["dateTime"].cast("int64").to_pylist()
            made = generator.records(table, kind, partitions)
            rows += [(at, kind, record) for at, record in zip(times, made, strict=True)]
        rows.sort(key=lambda row: row[0])
        for at, kind, record in rows:
            while (ahead := at / 1000 - time.time()) > 0:
                client.poll(0)
                if stop.wait(min(ahead, 0.05)):
                    client.flush(10)
                    return
            client.produce(f"{prefix}{kind}", **record)
    client.flush(10)
