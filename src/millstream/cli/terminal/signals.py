"""Turns Ctrl-C and SIGTERM into a flag that loops check, so that commands can end cleanly."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Counts interrupts while it is entered. The first asks for an orderly end, a second for an immediate
    one.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.count > 0

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


class Input:
    """Reads from a file descriptor until ``ended`` is true. ``taken`` counts the bytes.

    A blocking read would notice neither an interrupt nor a lost broker before the next line is typed.
    """

    def __init__(self, descriptor: int, ended: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._ended = ended
        self.taken = 0

    def read1(self, size: int) -> bytes:
        """Available bytes, at most ``size``; empty at the end of the input or once ``ended`` is true."""
        while not self._ended():
            if select.select([self._descriptor], [], [], 0.2)[0]:
                data = os.read(self._descriptor, size)
                self.taken += len(data)
                return data
        return b""
