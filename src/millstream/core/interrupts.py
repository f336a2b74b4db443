"""Turns Ctrl-C and SIGTERM into a flag that loops check, so that what runs can end cleanly."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Counts interrupts while it is entered. The first asks for an orderly end, a second for an immediate
    one: with ``impatient``, the second raises KeyboardInterrupt.

    Python handles signals in the main thread only. Elsewhere nothing is counted.
    """

    def __init__(self, *, impatient: bool = False) -> None:
        self.count = 0
        self._impatient = impatient
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.count > 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None is a handler that C code installed, and that Python can't install again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._impatient and self.count > 1:
            raise KeyboardInterrupt
