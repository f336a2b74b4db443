"""Serves the requests of one connection: Produce and Fetch in place, any other by its handler.

Produce and Fetch are handled in the receive buffer. Other requests are parsed by kio and passed to their
handler (``broker.api.handlers``). A request that can be answered at once creates no task and no future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine

from millstream.broker.api.fetch import fetch
from millstream.broker.api.handlers import HANDLERS, ServedRequest
from millstream.broker.api.node_connection import NodeConnection
from millstream.broker.api.not_leading import REFUSED
from millstream.broker.api.produce import produce
from millstream.broker.api.versions import unsupported_version
from millstream.broker.handler_types import Client, Reply, encode_answer, read_request
from millstream.broker.net.connection import Slot
from millstream.broker.net.reading import SMALLEST_FRAME
from millstream.core.errors import ProtocolError
from millstream.core.loop_slices import SLICE, in_slices, monotonic
from millstream.wire.api_keys import API_VERSIONS, FETCH, PRODUCE, name_of
from millstream.wire.frame import HEAD, HEAD_SIZE
from millstream.wire.hot.fetch import Part

SHARE = 100  # requests of one connection before other connections get a turn
LONG_FETCH = 8 * 1024  # bytes of a Fetch (some hundreds of partitions) from which it is processed in slices

_unpack_head = HEAD.unpack_from


class ServedConnection(NodeConnection):
    """See the module's description."""

    __slots__ = ()

    def _work(self, buffer: bytearray, view: memoryview, end: int) -> None:
        """Handle the complete frames in ``buffer[:end]`` and keep the rest."""
        position = 0
        left = SHARE
        until = 0.0
        requests = self.shared.counters.requests
        while end - position >= HEAD_SIZE:
            size, api_key, version, correlation_id = _unpack_head(buffer, position)
            stop = position + 4 + size
            if stop > end or size < SMALLEST_FRAME:
                break
            if api_key == PRODUCE:
                requests[PRODUCE] += 1
                produce(self, buffer, view, position, stop, version, correlation_id)
            elif api_key == FETCH:
                requests[FETCH] += 1
                if self.appended_in == self.turn.number:
                    self.turn.write()  # a client may read what it has just written
                if size < LONG_FETCH:
                    fetch(self, buffer, view, position, stop, version, correlation_id)
                else:
                    copy = bytearray(view[position:stop])
                    self.in_slices(
                        lambda copy=copy, version=version, correlation_id=correlation_id: fetch(  # type: ignore[misc]
                            self, copy, memoryview(copy), 0, len(copy), version, correlation_id
                        )
                    )
            else:
                until = until or monotonic() + SLICE
                self._handle(view, position, stop, api_key, version, correlation_id, until)
                if monotonic() >= until:
                    left = 1
            position = stop
            left -= 1
            if left == 0 and not self._held:
                self._hold()
                self.turn.resume(self)
            if self._held:
                break
        if self.outbox.unsent > self._max_unsent:
            self._hold()
        if position < end:
            self._keep(buffer, position, end)

    def _handle(
        self,
        view: memoryview,
        position: int,
        stop: int,
        api_key: int,
        version: int,
        correlation_id: int,
        until: float,
    ) -> None:
        """Handle any request but Produce and Fetch."""
        served = HANDLERS.get(api_key)
        if served is None or not served.first <= version <= served.last:
            if api_key == API_VERSIONS:
                # The client is newer than this broker. The response tells it which versions are served.
                self.answer(unsupported_version(correlation_id))
                return
            raise ProtocolError(f"asks for {name_of(api_key)} version {version}, which is not served here")
        if self.appended_in == self.turn.number:
            self.turn.write()
        self.shared.counters.requests[api_key] += 1
        data = bytes(view[position:stop])
        self.in_slices(lambda: self._serve(data, served, version, correlation_id), until)

    def _serve(self, data: bytes, served: ServedRequest, version: int, correlation_id: int) -> None:
        api_key = served.api_key
        request, client_id = read_request(data, api_key, version)
        if client_id != self.client_id:
            self.client_id = client_id
            self.look_up_quotas()
        if self.node.role.is_follower and api_key in REFUSED:
            refusal = REFUSED[api_key](request, version)
            self._answer_all(encode_answer(api_key, version, correlation_id, refusal, served))
            return
        if served.connection_handler is not None:
            try:
                served.connection_handler(self, request, version, correlation_id)
            except Exception as error:
                self.give_up(error, name_of(api_key), version)
            return
        try:
            answer = served.handler(self.node, request, Client(client_id, self.host, version, self.is_gone))
        except Exception as error:
            self.give_up(error, name_of(api_key), version)
            return
        if isinstance(answer, Awaitable):
            slot = self.reserve()
            self._busy += 1
            self._hold()
            if isinstance(answer, Coroutine):
                answer = in_slices(answer, self.shared.slices.next)
            task = asyncio.ensure_future(answer)
            self.shared.tasks.add(task)
            started = self.shared.clock.monotonic()

            def ended(task: asyncio.Future[Reply]) -> None:
                self.shared.counters.handler_seconds.observe(self.shared.clock.monotonic() - started)
                self._handler_ended(task, slot, served, version, correlation_id)

            task.add_done_callback(ended)
        else:
            self._answer_all(encode_answer(api_key, version, correlation_id, answer, served))

    def _handler_ended(
        self,
        task: asyncio.Future[Reply],
        slot: Slot,
        served: ServedRequest,
        version: int,
        correlation_id: int,
    ) -> None:
        self.shared.tasks.discard(task)
        self._busy -= 1
        if self.is_closed:
            if not task.cancelled():
                task.exception()
            return
        try:
            answer = task.result()
        except asyncio.CancelledError:
            self.close()
            return
        except Exception as error:
            self.give_up(error, name_of(served.api_key), version)
            return

        def encode() -> None:
            parts = encode_answer(served.api_key, version, correlation_id, answer, served)
            slot.resolve(parts, sum(map(len, parts)))  # type: ignore[arg-type]

        try:
            self.in_slices(encode)
        except Exception as error:
            self.give_up(error, name_of(served.api_key), version)

    def _answer_all(self, parts: list[Part]) -> None:
        if len(parts) == 1:
            self.answer(parts[0])  # type: ignore[arg-type]
        else:
            self.answer_parts(parts, sum(map(len, parts)))  # type: ignore[arg-type]
