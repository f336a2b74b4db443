"""What a connection has yet to send: order, partial sends, records from files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.net.counters import BrokerCounters
from millstream.broker.net.outbox import JOINED, Outbox
from millstream.log.partition import LogSlice
from millstream.log.storage.files import OsFiles


class Ends:
    """A pair of sockets with small buffers, and what was called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ours, self.theirs = socket.socketpair()
        for sock in (self.ours, self.theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.drained = 0
        self.broken: list[OSError] = []
        self.received = bytearray()
        self.outbox = Outbox(
            loop, self.ours, BrokerCounters(), drained=self._drained, broken=self.broken.append
        )

    def _drained(self) -> None:
        self.drained += 1

    def queue(self, *parts: Any) -> None:
        self.outbox.unsent += sum(p.size if isinstance(p, LogSlice) else len(p) for p in parts)
        self.outbox.send(list(parts))

    async def read_all(self, size: int) -> bytes:
        async with asyncio.timeout(20):
            while len(self.received) < size:
                try:
                    self.received += self.theirs.recv(3000)
                except BlockingIOError:
                    await asyncio.sleep(0)
        return bytes(self.received)

    def close(self) -> None:
        self.outbox.close()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def content(tmp_path: Path) -> Iterator[bytes]:
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    return data


def run(steps: Any) -> None:
    async def main() -> None:
        ends = Ends(asyncio.get_running_loop())
        try:
            await steps(ends)
        finally:
            ends.close()

    asyncio.run(main())


def test_small_answers_leave_at_once() -> None:
    async def steps(ends: Ends) -> None:
        ends.queue(b"one", bytearray(b"two"), b"three")
        assert ends.theirs.recv(100) == b"onetwothree"
        assert ends.outbox.unsent == 0
        assert ends.outbox.is_empty

    run(steps)


def test_records_from_a_file_keep_their_place(tmp_path: Path, content: bytes) -> None:
    async def steps(ends: Ends) -> None:
        file = OsFiles().open(str(tmp_path / "file"))
        ends.queue(b"head", LogSlice(file, 1000, 200_000), b"between", LogSlice(file, 5, 3))
        ends.queue(b"after")
        expected = b"head" + content[1000:201_000] + b"between" + content[5:8] + b"after"
        assert not ends.outbox.is_empty
        assert await ends.read_all(len(expected)) == expected
        assert ends.outbox.unsent == 0
        assert ends.drained > 0

    run(steps)


def test_the_same_part_may_be_queued_twice() -> None:
    async def steps(ends: Ends) -> None:
        body = b"b" * 10_000
        ends.queue(b"1", body, b"2", body)
        assert await ends.read_all(20_002) == b"1" + body + b"2" + body

    run(steps)


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_file_that_is_shorter_than_promised_breaks_the_connection(
    tmp_path: Path, content: bytes, size: int
) -> None:
    async def steps(ends: Ends) -> None:
        file = OsFiles().open(str(tmp_path / "file"))
        ends.queue(b"head", LogSlice(file, len(content) - 10, size))
        async with asyncio.timeout(20):
            while not ends.broken:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert "shorter" in str(ends.broken[0])

    run(steps)


def test_a_peer_that_is_gone_is_reported_once() -> None:
    async def steps(ends: Ends) -> None:
        ends.theirs.close()
        ends.queue(b"lost")
        assert len(ends.broken) == 1
        assert ends.outbox.unsent == 0

    run(steps)


@given(
    st.lists(
        st.one_of(
            st.integers(1, 400).map(lambda n: ("bytes", n)),
            st.just(("bytes", JOINED + 5)),
            st.tuples(st.just("file"), st.integers(1, 60_000)),
            st.just(("read", 2000)),
        ),
        max_size=30,
    )
)
@settings(max_examples=40, deadline=None)
def test_every_byte_arrives_once_and_in_order(plan: list[tuple[str, int]]) -> None:
    async def steps(ends: Ends) -> None:
        file = memory_file(os.urandom(60_000))
        expected = bytearray()
        for kind, size in plan:
            if kind == "read":
                await asyncio.sleep(0)
                with contextlib.suppress(BlockingIOError):
                    ends.received += ends.theirs.recv(size)
                continue
            data = os.urandom(size) if kind == "bytes" else file.pread(size, 0)
            expected += data
            ends.queue(data if kind == "bytes" else LogSlice(file, 0, size))
        assert await ends.read_all(len(expected)) == expected
        assert ends.outbox.unsent == 0

    run(steps)


def memory_file(data: bytes) -> Any:
    """A real descriptor, without a name."""
    fd = os.memfd_create("records")
    os.write(fd, data)
    from millstream.log.storage.files import OsFile

    return OsFile(fd)
