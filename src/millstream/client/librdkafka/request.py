"""Requests to librdkafka's admin client, with its results turned into values or millstream's errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any, Self

from millstream.client.connect import Connection
from millstream.client.errors import Complaints, failure
from millstream.core.errors import BrokerUnavailable, MillstreamError


class Requests:
    """One connection for requests. ``timeout`` is how long one request may take, in seconds."""

    def __init__(self, connection: Connection, *, timeout: float = 30.0) -> None:
        from confluent_kafka.admin import AdminClient

        self.connection = connection
        self._timeout = timeout
        self._complaints = Complaints()
        self._client: Any = connection.open(
            AdminClient, connection.properties({"error_cb": self._complaints})
        )
        connection.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._client  # librdkafka stops its threads when the last reference goes

    def _metadata(self) -> Any:
        """Every topic and broker of the cluster, which most commands request first."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self.connection.patience
        while True:
            try:
                return self._client.list_topics(timeout=min(1.0, self.connection.patience))
            except KafkaException as error:
                self._heed_complaints()
                if time.monotonic() > deadline:
                    raise failure(error.args[0], self.connection, complaints=self._complaints) from None

    def _result(self, future: Future[Any], what: str) -> Any:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._timeout + 5
        while True:
            try:
                return future.result(0.5)
            except KafkaException as error:
                self._heed_complaints()
                raise failure(error.args[0], self.connection, what, complaints=self._complaints) from None
            except FutureTimeout:
                self._heed_complaints()
                if time.monotonic() > deadline:
                    raise BrokerUnavailable(
                        f"{what}: {self.connection.address} did not answer within {self._timeout:g} s"
                    ) from None

    def _heed_complaints(self) -> None:
        """Collect librdkafka's complaints, and give up at once if waiting can't help."""
        self._client.poll(0)
        if self._complaints.final:
            assert self._complaints.last is not None
            raise failure(self._complaints.last, self.connection)

    def _until_seen(self, seen: Callable[[], bool], patience: float = 5.0) -> None:
        """Wait until a change is visible: Kafka responds before every broker has heard of it."""
        deadline = time.monotonic() + patience
        while not seen() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _outcome(self, future: Future[Any], what: str) -> MillstreamError | None:
        try:
            self._result(future, what)
        except MillstreamError as error:
            return error
        return None
