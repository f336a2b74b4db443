"""Reads input in a way that an interrupt can end."""

from __future__ import annotations

import os
import select
from collections.abc import Callable


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
