"""One connection that speaks the Kafka protocol itself: synchronous, with several requests in flight.

It does what librdkafka can't do from Python at speed: fetch batches as bytes, and produce batches that are
already encoded. Everything but Fetch and Produce goes through ``wire.codec.schema_codec``. Each request is
sent in one fixed version, which every broker since Kafka 2.4 serves, unless the caller names another. A
broker that does not is recognised by its ApiVersions, which are requested when the connection opens.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping, Sequence
from struct import Struct, error, unpack_from
from typing import Any, NamedTuple

from millstream.client.errors import refused
from millstream.client.protocol import security
from millstream.client.text.position import TopicPartition
from millstream.core.errors import BrokerUnavailable, ProtocolError
from millstream.wire.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from millstream.wire.codec import schema_codec as codec
from millstream.wire.frame import compact_bytes, unsigned_varint

VERSIONS = {
    PRODUCE: 8,
    FETCH: 11,
    LIST_OFFSETS: 5,
    METADATA: 9,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 7,
    FIND_COORDINATOR: 3,
    SASL_HANDSHAKE: 1,
    API_VERSIONS: 0,
    INIT_PRODUCER_ID: 2,
    ADD_PARTITIONS_TO_TXN: 3,
    ADD_OFFSETS_TO_TXN: 3,
    END_TXN: 3,
    TXN_OFFSET_COMMIT: 3,
    WRITE_TXN_MARKERS: 1,
    DESCRIBE_PRODUCERS: 0,
    DESCRIBE_TRANSACTIONS: 0,
    LIST_TRANSACTIONS: 0,
    DESCRIBE_GROUPS: 5,
    DELETE_GROUPS: 2,
    OFFSET_DELETE: 0,
    DESCRIBE_LOG_DIRS: 1,
    SASL_AUTHENTICATE: 1,
}
# From this version on, a Produce adds its partitions to the transaction by itself (KIP-890).
PRODUCE_ADDS = 12
_AFTER_LOGIN = (PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR)

# The largest response accepted: a Fetch is bounded by its request, all others are small.
MAX_ANSWER = 1 << 30

_SIZE = Struct(">i")
_HEAD = Struct(">hhi")  # api key, version, correlation id
_FETCH_HEAD = Struct(">iiiibii")  # replica, wait, least and most bytes, isolation, session id and epoch
_FETCH_PARTITION = Struct(">iiqqi")  # partition, leader epoch, offset, log start offset, most bytes
_FETCHED = Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start offset
_ABORTED = Struct(">qq")
_PRODUCED = Struct(">ihqqq")  # partition, error, base offset, append time, log start offset

Aborted = tuple[tuple[int, int], ...]


class FetchedPartition(NamedTuple):
    """One partition of a Fetch response. ``records`` is a view that the next response overwrites."""

    topic: str
    partition: int
    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Aborted
    records: memoryview


class ProducedPartition(NamedTuple):
    """One partition of a Produce response."""

    topic: str
    partition: int
    code: int
    base_offset: int
    message: str


class Link:
    """A connection to one broker: opened, encrypted and logged in as the options say.

    Responses come in the order of the requests. Any error except one in a response makes the link unusable:
    close it and open another. ``timeout`` bounds every wait for the socket.
    """

    def __init__(
        self,
        host: str,
        port: int,
        options: Mapping[str, str],
        *,
        timeout: float = 30.0,
        client_id: str = "millstream",
    ) -> None:
        self.address = f"{host}:{port}"
        self._client = _legacy_string(client_id)
        self._correlation = 0
        # Correlation id, api key and version of each request in flight
        self._expected: deque[tuple[int, int, int]] = deque()
        self._served: dict[int, tuple[int, int]] = {}
        self._features: dict[str, int] | None = None
        self._answer = bytearray(64 * 1024)
        self._socket = socket.create_connection((host, port), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.uses_tls(options):
                self._socket = security.wrap(self._socket, host, options)
            self._check_versions(self.request(API_VERSIONS, {}))
            if security.uses_sasl(options):
                self._log_in(options)
        except BaseException:
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        return len(self._expected)

    def close(self) -> None:
        self._expected.clear()
        self._socket.close()

    # Requests through the codec ----------------------------------------------------------------------

    def request(self, api_key: int, fields: Mapping[str, Any], version: int | None = None) -> Any:
        """Send a request and wait for its response, a kio dataclass. Nothing else may be in flight."""
        if self._expected:
            raise RuntimeError("other requests are in flight on this link")
        body = bytearray()
        if version is None:
            version = VERSIONS[api_key]
        codec.request_writer(api_key, version)(body, fields)
        self.send(api_key, [body], version)
        view = self.receive()
        try:
            return codec.answer_reader(api_key, version)(bytes(view), 0)[0]
        except Exception as problem:
            raise ProtocolError(f"{self.address} sent a response that can't be read: {problem}") from None

    def newest(self, api_key: int) -> int:
        """The newest version of a request that the broker serves; -1 if it serves none."""
        return self._served.get(api_key, (0, -1))[1]

    def feature(self, name: str) -> int:
        """The level at which a feature is finalized in the cluster; 0 if it is not."""
        if self._features is None:
            self._features = {}
            if self.newest(API_VERSIONS) >= 3:
                software = {"client_software_name": "millstream", "client_software_version": "0"}
                answer = self.request(API_VERSIONS, software, 3)
                self._features = {f.name: f.max_version_level for f in answer.finalized_features}
        return self._features.get(name, 0)

    def _check_versions(self, answer: Any) -> None:
        self._served = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        for key in _AFTER_LOGIN:
            least, most = self._served.get(key, (0, -1))
            if not least <= VERSIONS[key] <= most:
                raise BrokerUnavailable(
                    f"the broker at {self.address} does not serve version {VERSIONS[key]} of request {key};"
                    " Apache Kafka does since 2.4"
                )

    def _log_in(self, options: Mapping[str, str]) -> None:
        mechanism = security.mechanism_of(options)
        answer = self.request(SASL_HANDSHAKE, {"mechanism": mechanism})
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise BrokerUnavailable(f"{self.address} does not offer SASL {mechanism}; it offers {offered}")
        conversation = security.authentication(options)
        said = next(conversation)
        while True:
            answer = self.request(SASL_AUTHENTICATE, {"auth_bytes": said})
            if answer.error_code:
                reason = answer.error_message or "user or password is wrong"
                raise BrokerUnavailable(f"{self.address} refused the log-in: {reason}")
            try:
                said = conversation.send(answer.auth_bytes)
            except StopIteration:
                return

    # Frames ------------------------------------------------------------------------------------------

    def send(
        self, api_key: int, body: Sequence[bytes | bytearray | memoryview], version: int | None = None
    ) -> None:
        """Send a request whose body is already encoded, in parts. ``receive`` gets its response."""
        if version is None:
            version = VERSIONS[api_key]
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        head = _HEAD.pack(api_key, version, self._correlation) + self._client
        if codec.is_flexible(api_key, version):
            head += b"\0"  # no tagged fields
        size = len(head) + sum(len(part) for part in body)
        self._expected.append((self._correlation, api_key, version))
        first = _SIZE.pack(size) + head
        if size < 64 * 1024:
            self._socket.sendall(b"".join((first, *body)))
        else:
            self._socket.sendall(first)
            for part in body:
                self._socket.sendall(part)

    def receive(self) -> memoryview:
        """The body of the next response: a view of a buffer that the next call overwrites."""
        size = _SIZE.unpack(self._read(4))[0]
        if not 4 <= size <= MAX_ANSWER:
            raise ProtocolError(
                f"{self.address} sent an answer of {size} bytes, which is not the Kafka protocol"
            )
        frame = self._read(size)
        correlation, api_key, version = self._expected.popleft()
        if unpack_from(">i", frame)[0] != correlation:
            raise ProtocolError(f"{self.address} sent the response to another request")
        # Flexible responses have (empty) tagged fields in their header; that of ApiVersions never does.
        flexible = api_key != API_VERSIONS and codec.is_flexible(api_key, version)
        return frame[5:] if flexible else frame[4:]

    def _read(self, size: int) -> memoryview:
        if len(self._answer) < size:
            self._answer = bytearray(size)
        view = memoryview(self._answer)[:size]
        at = 0
        while at < size:
            got = self._socket.recv_into(view[at:])
            if got == 0:
                raise ConnectionResetError(f"{self.address} closed the connection")
            at += got
        return view

    # Fetch -------------------------------------------------------------------------------------------

    def send_fetch(
        self,
        partitions: Mapping[TopicPartition, tuple[int, int]],
        *,
        wait_ms: int,
        read_committed: bool,
        min_bytes: int = 1,
    ) -> None:
        """Request records of partitions, each from an offset and up to a number of bytes."""
        most = sum(size for _, size in partitions.values())
        out = bytearray(
            _FETCH_HEAD.pack(-1, wait_ms, min_bytes, min(most, 2**31 - 1), int(read_committed), 0, -1)
        )
        topics: dict[str, list[tuple[int, int, int]]] = {}
        for (topic, partition), (offset, size) in partitions.items():
            topics.setdefault(topic, []).append((partition, offset, size))
        out += _SIZE.pack(len(topics))
        for topic, wanted in topics.items():
            out += _legacy_string(topic)
            out += _SIZE.pack(len(wanted))
            for partition, offset, size in wanted:
                out += _FETCH_PARTITION.pack(partition, -1, offset, -1, size)
        out += _SIZE.pack(0)  # no session, so nothing to forget
        out += _legacy_string("")  # no rack
        self.send(FETCH, [out])

    def receive_fetch(self) -> list[FetchedPartition]:
        """The response to the oldest ``send_fetch``."""
        view = self.receive()
        try:
            return _read_fetch(view)
        except (error, UnicodeDecodeError) as problem:
            raise ProtocolError(
                f"{self.address} sent a Fetch response that can't be read: {problem}"
            ) from None

    # Produce -----------------------------------------------------------------------------------------

    def send_produce(
        self,
        batches: Mapping[TopicPartition, bytearray],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
        adds: bool = False,
    ) -> None:
        """Send one batch for each of some partitions. Under a transactional id, ``adds`` means that the
        request also adds the partitions to the transaction, which takes a broker with KIP-890."""
        topics: dict[str, list[tuple[int, bytearray]]] = {}
        for (topic, partition), batch in batches.items():
            topics.setdefault(topic, []).append((partition, batch))
        if adds:
            self.send(PRODUCE, _compact_produce(topics, acks, timeout_ms, transactional_id), PRODUCE_ADDS)
            return
        name = b"\xff\xff" if transactional_id is None else _legacy_string(transactional_id)
        parts: list[bytes | bytearray] = [name + Struct(">hii").pack(acks, timeout_ms, len(topics))]
        for topic, wanted in topics.items():
            parts.append(_legacy_string(topic) + _SIZE.pack(len(wanted)))
            for partition, batch in wanted:
                parts += (Struct(">ii").pack(partition, len(batch)), batch)
        self.send(PRODUCE, parts)

    def receive_produce(self) -> list[ProducedPartition]:
        """The response to the oldest ``send_produce``."""
        version = self._expected[0][2]
        view = self.receive()
        try:
            return _read_produce(view) if version == VERSIONS[PRODUCE] else _read_newer_produce(view, version)
        except (error, UnicodeDecodeError) as problem:
            raise ProtocolError(
                f"{self.address} sent a Produce response that can't be read: {problem}"
            ) from None


def _compact_produce(
    topics: Mapping[str, Sequence[tuple[int, bytearray]]],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
) -> list[bytes | bytearray]:
    """Version 12: lengths are varints, and every structure ends with its (empty) tagged fields."""
    name = b"\0" if transactional_id is None else compact_bytes(transactional_id.encode())
    parts: list[bytes | bytearray] = [
        name + Struct(">hi").pack(acks, timeout_ms) + unsigned_varint(len(topics) + 1)
    ]
    for topic, wanted in topics.items():
        parts.append(compact_bytes(topic.encode()) + unsigned_varint(len(wanted) + 1))
        for partition, batch in wanted:
            parts += (_SIZE.pack(partition) + unsigned_varint(len(batch) + 1), batch, b"\0")
        parts.append(b"\0")
    parts.append(b"\0")
    return parts


def _read_fetch(view: memoryview) -> list[FetchedPartition]:
    _, code, _, topics = unpack_from(">ihii", view)
    if code:
        raise refused(code, "fetching")
    at = 14
    found = []
    for _ in range(topics):
        topic, at = _read_string(view, at)
        (partitions,) = unpack_from(">i", view, at)
        at += 4
        for _ in range(partitions):
            partition, code, high_watermark, stable, log_start = _FETCHED.unpack_from(view, at)
            at += _FETCHED.size
            (count,) = unpack_from(">i", view, at)
            at += 4
            aborted = tuple(_ABORTED.unpack_from(view, at + 16 * i) for i in range(count))
            at += 16 * max(count, 0) + 4  # skips the preferred replica too
            (size,) = unpack_from(">i", view, at)
            at += 4
            size = max(size, 0)
            if at + size > len(view):
                raise error("records beyond the end of the response")
            records = view[at : at + size]
            at += size
            found.append(
                FetchedPartition(topic, partition, code, high_watermark, stable, log_start, aborted, records)
            )
    return found


def _read_produce(view: memoryview) -> list[ProducedPartition]:
    (topics,) = unpack_from(">i", view)
    at = 4
    found = []
    for _ in range(topics):
        topic, at = _read_string(view, at)
        (partitions,) = unpack_from(">i", view, at)
        at += 4
        for _ in range(partitions):
            partition, code, base_offset, _, _ = _PRODUCED.unpack_from(view, at)
            at += _PRODUCED.size
            (errors,) = unpack_from(">i", view, at)
            at += 4
            reasons = []
            for _ in range(errors):
                at += 4  # the index of the record
                reason, at = _read_string(view, at)
                reasons.append(reason)
            message, at = _read_string(view, at)
            found.append(
                ProducedPartition(topic, partition, code, base_offset, message or "; ".join(reasons))
            )
    return found


def _read_newer_produce(view: memoryview, version: int) -> list[ProducedPartition]:
    # Rare compared with the batches it acknowledges, so the slower schemas will do.
    try:
        answer = codec.answer_reader(PRODUCE, version)(bytes(view), 0)[0]
    except Exception as problem:
        raise error(str(problem)) from None
    return [
        ProducedPartition(
            topic.name,
            entry.index,
            int(entry.error_code),
            entry.base_offset,
            entry.error_message or "; ".join(e.batch_index_error_message or "" for e in entry.record_errors),
        )
        for topic in answer.responses
        for entry in topic.partition_responses
    ]


def _legacy_string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _read_string(view: memoryview, at: int) -> tuple[str, int]:
    (size,) = unpack_from(">h", view, at)
    at += 2
    if size < 0:
        return "", at
    if at + size > len(view):
        raise error("a string beyond the end of the response")
    return str(view[at : at + size], "utf-8"), at + size
