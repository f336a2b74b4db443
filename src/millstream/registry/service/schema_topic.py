"""The registry's thread for its topic: it keeps the store up to date, and writes changes to the topic.

Rules. Everything in the store came from the topic. A change is decided with everything in the topic known,
and written only if no other registry has written since (``client.protocol.fenced_partition`` says how). When
a change is answered, it is in the topic and in the store.

Several registries may share a topic, and no id or version is given out twice. If another registry was
faster, a change is decided again after a random pause, so that two registries do not fence each other for
ever. If it is unknown whether a change was written, repeating the request settles it: the registry finds it
done.

Queries are answered from the store, which follows the topic. If something is not found, it is looked for
once more after reading to the end of the topic, so that a schema that another registry has just registered
is not denied.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.fenced_partition import FencedPartition, Record
from millstream.client.text.position import TopicPartition
from millstream.core.clock import SystemClock
from millstream.core.errors import (
    BrokerUnavailable,
    ConfigError,
    MillstreamError,
    ProducerFenced,
    RegistryRefused,
)
from millstream.registry.service.registrar import Decision
from millstream.registry.service.store import SchemaStore

_log = logging.getLogger(__name__)

TOPIC = "_schemas"
_ATTEMPTS = 20  # at a write, while other registries take over the topic
_BLINK = 0.2  # seconds of each wait for work and for records; a request may wait that long for the thread
_STORE_ERROR, _TIMED_OUT = 50001, 50002


class SchemaTopic:
    """A store that follows its topic. ``start`` returns when everything in the topic is read."""

    def __init__(self, connection: Connection, topic: str = TOPIC, *, timeout: float = 10.0) -> None:
        self.store = SchemaStore()
        self.topic = topic
        self.failure: Exception | None = None  # why it no longer follows the topic
        self._connection = connection
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._partition = FencedPartition(
            connection, TopicPartition(topic, 0), f"{topic}-registry", patience=timeout
        )
        self._clock = SystemClock()
        self._away = False  # the broker did not answer the last time
        self._thread = threading.Thread(target=self._run, name="millstream-schemas", daemon=True)
        self._started: Future[None] = Future()

    # From any thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Find or create the topic, and read it. Raises MillstreamError if that is impossible."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def change(self, decide: Callable[[], Decision]) -> Future[Any]:
        """Decide on a change and write it. The future has the change's answer, once it is in the topic."""
        return self._ask(lambda: self._change(decide))

    def catch_up(self) -> Future[None]:
        """Read to the current end of the topic."""
        return self._ask(self._catch_up)

    def _ask(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        if self.failure is not None or not self._thread.is_alive():
            future.set_exception(RegistryRefused(_STORE_ERROR, f"the registry has stopped: {self.failure}"))
        else:
            self._asked.put((work, future))
        return future

    # On the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:
            self.failure = error if isinstance(error, Exception) else RuntimeError(str(error))
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        try:
            self._serve()
        except Exception as error:
            self.failure = error
            _log.exception("the schemas' topic can no longer be followed")
        finally:
            self._partition.close()
            while not self._asked.empty():
                asked = self._asked.get()
                if asked is not None:
                    asked[1].set_exception(RegistryRefused(_STORE_ERROR, "the registry is stopping"))

    def _serve(self) -> None:
        while True:
            try:
                asked = self._asked.get(timeout=_BLINK)
            except queue.Empty:
                self._follow()
                continue
            if asked is None:
                return
            work, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BrokerUnavailable as error:
                future.set_exception(RegistryRefused(_TIMED_OUT, str(error)))
            except RegistryRefused as error:
                future.set_exception(error)
            except MillstreamError as error:
                future.set_exception(RegistryRefused(_STORE_ERROR, str(error)))
            except Exception as error:
                _log.exception("a request to the registry failed; please report this")
                future.set_exception(error)

    def _follow(self) -> None:
        try:
            self._take_in(self._partition.read(patience=_BLINK))
            self._away = False
        except BrokerUnavailable as error:
            if not self._away:
                _log.warning("%s; meanwhile, known schemas are served", error)
            self._away = True

    def _open(self) -> None:
        with Admin(self._connection) as admin:
            if self.topic not in admin.topics():
                admin.create_topic(
                    self.topic, partitions=1, config={"cleanup.policy": "compact"}, if_not_exists=True
                )
            (there,) = admin.describe_topics([self.topic])
            policy = {entry.name: entry.value for entry in admin.topic_config(self.topic)}["cleanup.policy"]
        if len(there.partitions) != 1:
            raise ConfigError(
                f"topic {self.topic!r} has {len(there.partitions)} partitions; schemas need a single one"
            )
        if policy != "compact":
            raise ConfigError(
                f"topic {self.topic!r} has cleanup.policy={policy}: schemas would be deleted; set it"
                f" with `millstream topic alter {self.topic} --set cleanup.policy=compact`"
            )
        self._catch_up()

    def _catch_up(self) -> None:
        for records in self._partition.catch_up():
            self._take_in(records)

    def _take_in(self, records: Iterable[Record]) -> None:
        for record in records:
            self.store.apply(record.key, record.value, record.timestamp)

    def _change(self, decide: Callable[[], Decision]) -> Any:
        for attempt in range(_ATTEMPTS):
            if not self._partition.writes:
                self._partition.take_over()
                self._catch_up()
            change = decide()
            if not change.records:
                return change.answer
            now = self._clock.now_ms()
            try:
                self._partition.append([Record(key, value, (), now) for key, value in change.records])
            except ProducerFenced as error:
                _log.info("another registry writes to %s as well (%s); trying again", self.topic, error)
                threading.Event().wait(random.uniform(0, 0.01 * 2 ** min(attempt, 6)))
                continue
            self._catch_up()
            return change.answer
        raise RegistryRefused(
            _TIMED_OUT, f"other registries keep writing to {self.topic}; {_ATTEMPTS} attempts failed"
        )
