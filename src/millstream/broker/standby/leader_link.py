"""A standby's connection to its leader: one request at a time, any size of response, one buffer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from struct import Struct, iter_unpack
from typing import Any, Self

from millstream.core.errors import BrokerUnavailable, MillstreamError, ProtocolError, RequestRefused
from millstream.core.kafka_errors import COORDINATOR_NOT_AVAILABLE
from millstream.wire.api_keys import API_VERSIONS, FOLLOW, INIT_PRODUCER_ID, name_of
from millstream.wire.frame import HEAD, INT, string_bytes
from millstream.wire.standby import STANDBY_CLIENT, read_message, write_message

PATIENCE = 10.0  # seconds for connecting, and for a response that the leader does not hold back
PRODUCER_ID_PATIENCE = 3.0  # a client is waiting for it
_MAX_ANSWER = 1 << 30
_PRODUCER_ID_ASKED = Struct(">hi").pack(-1, 0)  # no transactional id, so no transaction time-out
_PRODUCER_ID = Struct(">ihq")  # throttle time, error, producer id
_API = Struct(">hhh")  # key, lowest and highest version


class LeaderLink(asyncio.BufferedProtocol):
    """Made by ``open``. Any error makes it unusable: close it and open another."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._size = bytearray(4)
        self._buffer = bytearray(64 * 1024)
        self._wanted = 0  # bytes of the current response; 0 while its size is being read
        self._have = 0
        self._correlation = 0
        self._answer: asyncio.Future[memoryview] | None = None
        self.address = ""

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect. Raises BrokerUnavailable, or RequestRefused if the broker can't be followed."""
        loop = asyncio.get_running_loop()
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(PATIENCE):
                _, link = await loop.create_connection(cls, host, port)
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"{address}: {error or 'no answer'}") from None
        link.address = address
        try:
            await link._check_versions()
        except BaseException:
            link.close()
            raise
        return link

    async def _check_versions(self) -> None:
        body = bytes(await self.request(API_VERSIONS, 0, b""))
        try:
            (count,) = INT.unpack_from(body, 2)
            keys = {key for key, _, _ in iter_unpack(_API.format, body[6 : 6 + count * _API.size])}
        except Exception:
            raise RequestRefused(
                0, f"what listens at {self.address} does not speak the Kafka protocol"
            ) from None
        if FOLLOW not in keys:
            raise RequestRefused(
                0,
                f"the broker at {self.address} can't be followed: it is Apache Kafka, or a millstream that "
                "has no standbys. Apache Kafka's own replicas and MirrorMaker copy its topics",
            )

    async def ask(
        self, api_key: int, fields: Mapping[str, Any], *, patience: float = PATIENCE
    ) -> tuple[dict[str, Any], memoryview]:
        """Send one of the requests between brokers.

        Raises RequestRefused with the leader's reason, or BrokerUnavailable if the leader says that it
        can't for now.
        """
        body = await self.request(api_key, 0, write_message(fields), patience=patience)
        answer, attached = read_message(body)
        if "retry" in answer:
            raise BrokerUnavailable(f"{self.address} can't for now: {answer['error']}")
        if "error" in answer:
            raise RequestRefused(0, f"the broker at {self.address} refuses: {answer['error']}")
        return answer, memoryview(attached)

    async def request(
        self, api_key: int, version: int, body: bytes, *, tags: bool = False, patience: float = PATIENCE
    ) -> memoryview:
        """The response's body, which the next response overwrites. Raises BrokerUnavailable."""
        if self._transport is None or self._transport.is_closing():
            raise BrokerUnavailable(f"{self.address} closed the connection")
        self._correlation += 1
        client = string_bytes(STANDBY_CLIENT) + (b"\0" if tags else b"")
        size = HEAD.size - 4 + len(client) + len(body)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(HEAD.pack(size, api_key, version, self._correlation) + client + body)
        try:
            async with asyncio.timeout(patience):
                frame = await self._answer
        except TimeoutError:
            self.close()
            raise BrokerUnavailable(f"{self.address} does not answer {name_of(api_key)}") from None
        if INT.unpack_from(frame)[0] != self._correlation:
            self.close()
            raise ProtocolError(f"{self.address} sent the response to another request")
        return frame[5:] if tags else frame[4:]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer if self._wanted else self._size
        return memoryview(buffer)[self._have : self._wanted or 4]

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        if self._wanted == 0:
            if self._have == 4:
                (self._wanted,) = INT.unpack(self._size)
                self._have = 0
                if not 4 <= self._wanted <= _MAX_ANSWER:
                    self._fail(f"{self.address} sent a response of {self._wanted} bytes")
                    self.close()
                elif self._wanted > len(self._buffer):
                    self._buffer = bytearray(self._wanted)
        elif self._have == self._wanted:
            frame = memoryview(self._buffer)[: self._wanted]
            self._wanted = self._have = 0
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"{self.address} closed the connection" + (f": {error}" if error else ""))

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(BrokerUnavailable(why))


async def producer_id_of(host: str, port: int) -> int:
    """Get a producer id from another broker. Raises RequestRefused with an error that producers retry."""
    try:
        async with asyncio.timeout(PRODUCER_ID_PATIENCE):
            link = await LeaderLink.open(host, port)
            try:
                answer = await link.request(INIT_PRODUCER_ID, 0, _PRODUCER_ID_ASKED)
                _, error, producer_id = _PRODUCER_ID.unpack_from(answer)
            finally:
                link.close()
    except (MillstreamError, TimeoutError) as problem:
        raise RequestRefused(
            COORDINATOR_NOT_AVAILABLE, f"no producer id from the leader: {problem}"
        ) from None
    if error:
        raise RequestRefused(COORDINATOR_NOT_AVAILABLE, f"the leader gives no producer id: error {error}")
    return int(producer_id)
