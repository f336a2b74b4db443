"""Watch a broker and its standby, and switch between them.

Only millstream's brokers have these requests: Apache Kafka has replicas and elects their leaders itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.client.connect import Connection
from millstream.client.protocol.link import Link
from millstream.core.errors import BrokerUnavailable, MillstreamError, RequestFailed
from millstream.wire.api_keys import PROMOTE, STANDBY_STATUS
from millstream.wire.standby import STANDBY_CLIENT, read_message, write_message


@dataclass(frozen=True, slots=True)
class PromotionResult:
    """A standby's answer to a promotion. ``reasons``: why it is refused, or what forcing it gives up."""

    allowed: bool
    reasons: tuple[str, ...]
    lost: tuple[tuple[str, int, int, int], ...]  # topic, partition, first offset, offset after the last
    note: str  # what is known, and as of when


class BrokerPair:
    """Queries one broker about its role. For one thread."""

    def __init__(self, connection: Connection, *, timeout: float = 90.0) -> None:
        self._connection = connection
        self._timeout = timeout

    def status(self) -> dict[str, Any]:
        """The broker's role ("leader", "standby" or "fenced") and how far the two brokers agree."""
        return self._ask(STANDBY_STATUS, {})

    def promote(self, *, force: bool = False) -> PromotionResult:
        """Have a standby replace its leader. Returns once it leads, or with the reasons why it does not."""
        answer = self._ask(PROMOTE, {"force": force})
        lost = tuple((topic, index, first, end) for topic, index, first, end in answer["lost"])
        verdict = PromotionResult(bool(answer["allowed"]), tuple(answer["reasons"]), lost, answer["note"])
        if verdict.allowed:
            self._wait_until_it_leads()
        return verdict

    def _wait_until_it_leads(self) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                if self.status()["role"] == "leader":
                    return
            except MillstreamError:
                pass  # nobody listens while it changes its role
            if time.monotonic() > deadline:
                raise BrokerUnavailable(
                    f"{self._connection.address} was promoted but did not lead within {self._timeout:g} s; "
                    "its log says why"
                )
            time.sleep(0.05)

    def _ask(self, api_key: int, fields: Mapping[str, Any]) -> dict[str, Any]:
        (host, port), *_ = self._connection.servers()
        try:
            link = Link(host, port, self._connection.options, timeout=self._timeout, client_id=STANDBY_CLIENT)
        except OSError as error:
            raise self._connection.unavailable(error.strerror or str(error)) from None
        try:
            if link.newest(api_key) < 0:
                raise RequestFailed(
                    35,
                    "UNSUPPORTED_VERSION",
                    f"the broker at {link.address} has no standbys: it is Apache Kafka, which replicates by "
                    "itself, or an older millstream",
                )
            link.send(api_key, [write_message(fields)], 0)
            answer, _ = read_message(link.receive())
        except OSError as error:
            raise self._connection.unavailable(error.strerror or str(error)) from None
        finally:
            link.close()
        if "error" in answer:
            raise RequestFailed(42, "INVALID_REQUEST", f"{link.address}: {answer['error']}")
        return answer
