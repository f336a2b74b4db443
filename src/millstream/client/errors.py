"""Turns Kafka's error codes and librdkafka's errors into millstream's exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.connect import Connection
from millstream.core.errors import BrokerUnavailable, MillstreamError, RequestFailed
from millstream.wire.codec.schemas import error_codes

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_NOBODY_THERE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TIMED_OUT_QUEUE")
_NOT_LET_IN = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL")


def refused(code: int, what: str, message: str = "") -> RequestFailed:
    """A broker's error code as an exception: ``what`` was requested, and what Kafka calls the error."""
    try:
        name = error_codes()(code).name.upper()
    except ValueError:
        name = f"UNKNOWN_ERROR_{code}"
    words = message or name.replace("_", " ").lower()
    return RequestFailed(code, name, f"{what}: {words} ({name})")


def is_retriable(code: int) -> bool:
    """True if Kafka says that the same request may succeed a little later."""
    try:
        return bool(error_codes()(code).retriable)
    except ValueError:
        return False


class Complaints:
    """The last error that librdkafka reported by itself; passed to it as ``error_cb``.

    A call that times out says only that. The reason (refused, not trusted, wrong password) was reported here.
    """

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if self.last is None or error.name() != "_ALL_BROKERS_DOWN":
            self.last = error

    @property
    def final(self) -> bool:
        """True if retrying is pointless: the broker is there and rejects the login."""
        return self.last is not None and self.last.name() in _NOT_LET_IN


def failure(
    error: KafkaError, connection: Connection, what: str = "", *, complaints: Complaints | None = None
) -> MillstreamError:
    """librdkafka's error as one of millstream's: no broker there, or a broker that refused ``what``."""
    if error.name() in _NOBODY_THERE and complaints is not None and complaints.last is not None:
        error = complaints.last
    if error.name() in _NOT_LET_IN:
        return BrokerUnavailable(f"{connection.address} refused the log-in: {_sentence(error)}")
    if error.name() in _NOBODY_THERE:
        return connection.unavailable(_sentence(error))
    return RequestFailed(
        error.code(), error.name(), f"{what}: {_sentence(error)}" if what else _sentence(error)
    )


def _sentence(error: KafkaError) -> str:
    text: str = error.str()
    return text.removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
