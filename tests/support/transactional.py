"""Transactional producers and readers of four client libraries, behind one interface.

A library is ``confluent`` (librdkafka), ``kafka-python``, ``aiokafka`` or ``java`` (Kafka's own, the only one
that speaks the newer transaction protocol). Their errors are mapped to what the user can do:
:class:`MustAbort`, or :class:`Finished`, after which only a new producer helps.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.apache_kafka import jars
from tests.support.java_program import java_program

LIBRARIES = ["confluent", "kafka-python", "aiokafka", "java"]
Found = list[tuple[int, int, str]]  # partition, offset, value


class MustAbort(Exception):
    """This transaction can't be committed. Abort it and go on."""


class Finished(Exception):
    """This producer can't go on: it was fenced, or it no longer knows its state."""


class TransactionalProducer(Protocol):
    offsets: dict[str, int]
    """The offsets of the last transaction's records, by value, as far as they were acknowledged."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str) -> None: ...
    def flush(self) -> None: ...
    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None:
        """Abandon the producer as a crash would: an open transaction stays open."""


class Confluent:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._address = address
        self.offsets: dict[str, int] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self._call(lambda: self._producer.init_transactions(30))

    def _call(self, step: Callable[[], object]) -> None:
        for _ in range(10):
            try:
                step()
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.retriable():
                    continue
                if error.txn_requires_abort():
                    raise MustAbort(str(error)) from failure
                raise Finished(str(error)) from failure
        raise Finished("retried for minutes")

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.offsets[message.value().decode()] = message.offset()

    def begin(self) -> None:
        self.offsets = {}
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> None:
        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        except KafkaException as failure:
            raise MustAbort(str(failure)) from failure

    def flush(self) -> None:
        self._producer.flush(30)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        member = Consumer({"bootstrap.servers": self._address, "group.id": group, "log_level": 0})
        try:
            self.send_offsets([TopicPartition(topic, partition, offset)], member)
        finally:
            member.close()

    def send_offsets(self, offsets: list[TopicPartition], member: Consumer) -> None:
        """Commit offsets in the transaction, as the group member that ``member`` is."""
        metadata = member.consumer_group_metadata()
        self._call(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, 30))

    def commit(self) -> None:
        self._call(lambda: self._producer.commit_transaction(30))

    def abort(self) -> None:
        try:
            self._call(lambda: self._producer.abort_transaction(30))
        except MustAbort as error:
            raise Finished(str(error)) from error

    def close(self) -> None:
        self._producer.purge()


class KafkaPython:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.offsets: dict[str, int] = {}
        self._sent: dict[str, Any] = {}
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=30_000,
        )
        self._call(self._producer.init_transactions)

    def _call(self, step: Callable[[], object]) -> None:
        try:
            step()
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise Finished(repr(error)) from error
        except kafka.errors.KafkaError as error:
            raise MustAbort(repr(error)) from error

    def begin(self) -> None:
        self.offsets, self._sent = {}, {}
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str) -> None:
        self._sent[value] = self._producer.send(topic, value.encode(), partition=partition)

    def flush(self) -> None:
        self._call(lambda: self._producer.flush(30))

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {kafka.TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        self._call(lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)
        self.offsets = {value: future.get(30).offset for value, future in self._sent.items()}

    def abort(self) -> None:
        try:
            self._call(self._producer.abort_transaction)
        except MustAbort as error:
            raise Finished(str(error)) from error

    def close(self) -> None:
        self._producer.close(timeout=0)


class AioKafka:
    """aiokafka, on its own loop in its own thread."""

    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.offsets: dict[str, int] = {}
        self._sent: dict[str, asyncio.Future[Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def started() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=address,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._await(started())

    def _await(self, step: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(step, self._loop).result(90)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise Finished(repr(error)) from error
        except aiokafka.errors.KafkaError as error:
            raise MustAbort(repr(error)) from error

    def begin(self) -> None:
        self.offsets, self._sent = {}, {}
        self._await(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._sent[value] = self._await(self._producer.send(topic, value.encode(), partition=partition))

    def flush(self) -> None:
        self._await(self._producer.flush())

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {aiokafka.TopicPartition(topic, partition): aiokafka.structs.OffsetAndMetadata(offset, "")}
        self._await(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._await(self._producer.commit_transaction())
        self.offsets = {value: future.result().offset for value, future in self._sent.items()}

    def abort(self) -> None:
        try:
            self._await(self._producer.abort_transaction())
        except (MustAbort, AssertionError) as error:  # aiokafka asserts that it was not fenced
            raise Finished(str(error)) from error

    def close(self) -> None:
        """Cancel the producer's tasks. aiokafka's ``stop`` would commit or abort first."""

        async def ended() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._producer.client.close()
            # Its destructor would complain that stop() was not called.
            self._producer._closed = True

        self._await(ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class JavaPeer:
    """``TransactionalPeer.java`` as a process at the other end of two pipes."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            java_program("TransactionalPeer", jars(), address, heap="128m"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def tell(self, *words: object) -> list[str]:
        """Send a command, and return the lines of the response. The last is the rest of the ``ok`` line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        lines = []
        while line := self._process.stdout.readline().rstrip("\n"):
            kind, _, rest = line.partition(" ")
            if kind == "error":
                raise _java_error(rest)
            if kind == "ok":
                return [*lines, rest]
            lines.append(line)
        raise Finished("the Java program ended")

    def end(self) -> None:
        """End the process by closing its input, which it treats as a crash."""
        self._process.communicate(timeout=400)


_JAVA_FATAL = {
    "ProducerFencedException",
    "InvalidProducerEpochException",
    "InvalidPidMappingException",
    "OutOfOrderSequenceException",
    "IllegalStateException",
}


def _java_error(text: str) -> Exception:
    error, cause, *_ = text.split(" ")
    if error == "TimeoutException":
        return TimeoutError(text)
    return Finished(text) if {error, cause} & _JAVA_FATAL else MustAbort(text)


class Java:
    def __init__(self, address: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.offsets: dict[str, int] = {}
        self._peer = JavaPeer(address)
        self._again("init", transactional_id, timeout_ms)

    def _again(self, *words: object) -> list[str]:
        """Send a command again if it times out. The producer remembers that it was in progress."""
        for _ in range(4):
            try:
                return self._peer.tell(*words)
            except TimeoutError:
                continue
        raise Finished(f"{words[0]} timed out for minutes")

    def begin(self) -> None:
        self.offsets = {}
        self._peer.tell("begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self._peer.tell("send", topic, partition, value)

    def flush(self) -> None:
        self._peer.tell("flush")

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._again("offset", group, topic, partition, offset)

    def commit(self) -> None:
        places = self._again("commit")[-1].split()
        self.offsets = {
            value: int(offset) for value, _, offset in (place.rpartition("=") for place in places)
        }

    def abort(self) -> None:
        try:
            self._again("abort")
        except MustAbort as error:
            raise Finished(str(error)) from error

    def close(self) -> None:
        self._peer.end()


PRODUCERS: dict[str, type[Confluent] | type[KafkaPython] | type[AioKafka] | type[Java]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java": Java,
}


# Readers, which read a topic from its beginning to the end that the isolation level shows.


def read_messages(address: str, topic: str, partitions: int, isolation: str) -> list[Message]:
    """All messages up to the ends that the isolation level showed at first. Writers may go on meanwhile."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = [consumer.get_watermark_offsets(place, 30)[1] for place in places]
    consumer.assign(places)
    found: list[Message] = []
    reading = set(range(partitions))
    deadline = time.monotonic() + 60
    while reading:
        assert time.monotonic() < deadline, f"{topic}: partitions {reading} were not read to their end"
        for message in consumer.consume(1000, 0.05):  # it waits until it has all 1000, or for 0.05 s
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                reading.discard(message.partition())
            elif message.offset() >= ends[message.partition()]:
                reading.discard(message.partition())
            else:
                found.append(message)
    consumer.close()
    return found


def read_with_confluent(address: str, topic: str, partitions: int, isolation: str) -> Found:
    messages = read_messages(address, topic, partitions, isolation)
    return [(message.partition(), message.offset(), message.value().decode()) for message in messages]


def _read_with_kafka_python(address: str, topic: str, partitions: int, isolation: str) -> Found:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address, isolation_level=isolation, enable_auto_commit=False, group_id=None
    )
    places = [kafka.TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    found: Found = []
    while any(consumer.position(place) < ends[place] for place in places):
        for records in consumer.poll(200).values():
            found += [(record.partition, record.offset, record.value.decode()) for record in records]
    consumer.close()
    return found


def _read_with_aiokafka(address: str, topic: str, partitions: int, isolation: str) -> Found:
    async def read() -> Found:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, isolation_level=isolation, enable_auto_commit=False, group_id=None
        )
        await consumer.start()
        try:
            places = [aiokafka.TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            ends = await consumer.end_offsets(places)
            found: Found = []
            while any([await consumer.position(place) < ends[place] for place in places]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [(record.partition, record.offset, record.value.decode()) for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), 60))


def read_with_java(peer: JavaPeer, topic: str, partitions: int, isolation: str) -> Found:
    lines = [line.split(" ") for line in peer.tell("read", topic, partitions, isolation)[:-1]]
    return [(int(partition), int(offset), value) for partition, offset, value in lines]


Reader = Callable[[str, int, str], Found]  # topic, partitions, isolation level


@contextmanager
def readers(address: str) -> Iterator[dict[str, Reader]]:
    """A reader for each library. Java's is one process for all its reads."""
    peer = JavaPeer(address)
    try:
        yield {
            "confluent": partial(read_with_confluent, address),
            "kafka-python": partial(_read_with_kafka_python, address),
            "aiokafka": partial(_read_with_aiokafka, address),
            "java": partial(read_with_java, peer),
        }
    finally:
        peer.end()
