"""Hands batches over from running tasks to the driver's sender through a socket, on a single machine.

In a transaction a partition has one sender, because its batches are numbered (sending.py). If the driver is
that sender, it has to get what the tasks have encoded. As the result of a Spark job, everything would come at
the end and at once, copied several times on the way. Through a Unix socket each batch comes as soon as it is
made, and is on its way to the broker before the next one is ready. Nothing piles up either: while the broker
is slow, the tasks wait.

A task sends the number of the attempt that it works for, then batches in Kafka's format, then an end mark. It
waits until the driver confirms that it has taken everything, and only then ends successfully. So all records
of a successful job have been passed on. If a job failed, some may have been sent, in a transaction that is
aborted.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from millstream.client.protocol.sender import BatchSender
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError

log = logging.getLogger(__name__)

_HELLO = struct.Struct(">q")  # the attempt's number
_BATCH = struct.Struct(">iI")  # the partition's number among the targets, the size
_THE_END = -1
_TAKEN = b"\1"


@dataclass(frozen=True, slots=True)
class ReceiverAddress:
    """Where a task finds the driver, and the attempt that the task works for."""

    path: str
    attempt: int


class HandOver:
    """A task's side."""

    def __init__(self, address: ReceiverAddress) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address.path)
            self._socket.sendall(_HELLO.pack(address.attempt))
        except BaseException:
            self._socket.close()
            raise

    def give(self, target: int, data: bytearray) -> None:
        self._socket.sendall(_BATCH.pack(target, len(data)))
        self._socket.sendall(data)

    def finish(self) -> None:
        """Send the end mark, and wait until the driver has taken everything."""
        self._socket.sendall(_BATCH.pack(_THE_END, 0))
        if self._socket.recv(1) != _TAKEN:
            raise MillstreamError("the driver did not take the records of this task")

    def close(self) -> None:
        self._socket.close()


class Receiver:
    """The driver's side: one socket for all batches of a query."""

    def __init__(self) -> None:
        self._home = tempfile.mkdtemp(prefix="millstream-handover-")
        self._path = os.path.join(self._home, "driver")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self._path)
        self._listening.listen(128)
        self._lock = threading.Lock()  # guards sending, and the fields below
        self._attempt = 0
        self._sender: BatchSender | None = None
        self._partitions: tuple[TopicPartition, ...] = ()
        self._problem: Exception | None = None
        threading.Thread(target=self._accept, name="handover", daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        shutil.rmtree(self._home, ignore_errors=True)

    @contextmanager
    def receiving(
        self, sender: BatchSender, partitions: tuple[TopicPartition, ...]
    ) -> Iterator[ReceiverAddress]:
        """While this is open, what tasks hand over goes to ``sender``. At its end, all of it is acknowledged.
        If sending failed, raises that error, whatever other errors followed from it."""
        with self._lock:
            self._attempt += 1
            self._sender, self._partitions, self._problem = sender, partitions, None
        try:
            yield ReceiverAddress(self._path, self._attempt)
        except Exception:
            if self._problem is not None:
                raise self._problem from None
            raise
        else:
            sender.flush()
        finally:
            with self._lock:  # a task that is still running is turned away
                self._sender = None

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), name="handover", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                (attempt,) = _HELLO.unpack(_received(connection, _HELLO.size))
                while True:
                    target, size = _BATCH.unpack(_received(connection, _BATCH.size))
                    if target == _THE_END:
                        break
                    if not self._send_on(attempt, target, _received(connection, size)):
                        return
                connection.sendall(_TAKEN)
            except OSError as error:
                log.debug("a task hung up: %s", error)

    def _send_on(self, attempt: int, target: int, data: bytearray) -> bool:
        with self._lock:
            if attempt != self._attempt or self._sender is None or self._problem is not None:
                return False
            try:
                self._sender.send([(self._partitions[target], data)])
            except Exception as error:  # whatever it is, the batch's thread has to raise it
                self._problem = error
                return False
            return True


def _received(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionResetError("in the middle of a batch")
        view = view[count:]
    return data
