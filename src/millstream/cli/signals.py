"""Ctrl-C and SIGTERM as something a loop looks at, for commands that end in good order."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Counts interrupts while it is entered. The first asks for an end in order, a second for one at once."""

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
    """A file descriptor to read from until ``ended`` says so; ``taken`` counts the bytes.

    A blocking read would not notice an interrupt, nor a broker that has gone, before the next line is typed.
    """

    def __init__(self, descriptor: int, ended: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._ended = ended
        self.taken = 0

    def read1(self, size: int) -> bytes:
        """What is there, up to ``size`` bytes; empty at the end of the input or when ``ended``."""
        while not self._ended():
            if select.select([self._descriptor], [], [], 0.2)[0]:
                data = os.read(self._descriptor, size)
                self.taken += len(data)
                return data
        return b""
