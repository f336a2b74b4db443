"""A client that speaks the protocol byte by byte, for requests that real clients would never send."""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Any

from millstream.records.build import Record, build_batch
from millstream.wire.api_keys import is_flexible
from millstream.wire.codec.schema_codec import answer_reader, request_writer

API_VERSIONS, PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, CREATE_TOPICS = 18, 0, 1, 2, 3, 8, 19
_HEAD = Struct(">hhih")


def request(
    api_key: int, version: int, correlation_id: int, *, client: bytes = b"test", **fields: Any
) -> bytes:
    """A whole request frame."""
    body = bytearray(_HEAD.pack(api_key, version, correlation_id, len(client)) + client)
    if is_flexible(api_key, version):
        body.append(0)
    request_writer(api_key, version)(body, fields)
    return len(body).to_bytes(4, "big") + bytes(body)


def answer(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """The correlation id and the parsed response of a frame without its size."""
    position = 5 if is_flexible(api_key, version) and api_key != API_VERSIONS else 4
    parsed, size = answer_reader(api_key, version)(frame, position)
    assert position + size == len(frame), "bytes are left over after the answer"
    return int.from_bytes(frame[:4], "big", signed=True), parsed


def frames(data: bytes) -> list[bytes]:
    """The frames in a stream, without their sizes. The stream must end with a whole frame."""
    found = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        assert position + 4 + size <= len(data), "the stream ends inside an answer"
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def records(*values: bytes, **options: Any) -> bytes:
    return bytes(build_batch([Record(None, value) for value in values or (b"x",)], **options))


def produce(
    correlation_id: int,
    topic: str,
    *partitions: int,
    batch: bytes | None = None,
    acks: int = 1,
    version: int = 9,
    **fields: Any,
) -> bytes:
    data = records() if batch is None else batch
    return request(
        PRODUCE,
        version,
        correlation_id,
        acks=acks,
        topic_data=[
            {"name": topic, "partition_data": [{"index": p, "records": data} for p in partitions or (0,)]}
        ],
        **{"timeout": 5000, **fields},
    )


def fetch(
    correlation_id: int, topic: str, offset: int = 0, *, wait: int = 0, version: int = 12, **fields: Any
) -> bytes:
    partition_fields = {k: fields.pop(k) for k in ("current_leader_epoch",) if k in fields}
    return request(
        FETCH,
        version,
        correlation_id,
        **{
            "replica_id": -1,
            "max_wait": wait,
            "min_bytes": 1,
            "max_bytes": 52428800,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "partition_max_bytes": 1048576,
                            **partition_fields,
                        }
                    ],
                }
            ],
            **fields,
        },
    )


class WireClient:
    """One connection to a broker. Responses come in the order of the requests."""

    def __init__(self, address: str, timeout: float = 20) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next response frame, without its size. Raises EOFError if the broker closes the connection."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError(f"the broker closed the connection after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def call(self, api_key: int, version: int, **fields: Any) -> Any:
        self.send(request(api_key, version, 1, **fields))
        correlation_id, parsed = answer(api_key, version, self.receive())
        assert correlation_id == 1
        return parsed

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        result = self.call(
            CREATE_TOPICS,
            7,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
                }
            ],
            timeout=5000,
        )
        assert result.topics[0].error_code.value == 0, result

    def is_closed(self) -> bool:
        """Wait for the next response. True if the broker closes the connection instead."""
        try:
            self.receive()
        except EOFError:
            return True
        return False
