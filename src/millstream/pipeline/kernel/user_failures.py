"""Describes the failure of a user's function in one line: the key, the record, and the line of code.

A program that calls a user's function raises ``RecordFailed`` or, if the job says so, sends the record to
the channel ``failed`` with what ``reason`` and ``line`` return.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

FAILED_COLUMNS = (pa.field("error", pa.string()), pa.field("error_at", pa.string()))
_MOST_OF_A_VALUE, _MOST_OF_A_RECORD = 80, 400
_OURS = str(Path(__file__).parents[2])


class RecordFailed(Exception):
    """A user's function failed with ``error``. ``key`` and ``sample`` are text."""

    def __init__(self, key: str, sample: str, error: BaseException) -> None:
        self.key = key
        self.sample = sample
        self.error = error
        super().__init__(f"{key}: {reason(error)}")


def shortened(names: Sequence[str], values: Sequence[Any]) -> str:
    """``card='c1', eur=5.0``, shortened where it is too long."""
    parts = []
    for name, value in zip(names, values, strict=True):
        text = value.isoformat() if isinstance(value, date) else repr(value)
        parts.append(
            f"{name}={text if len(text) <= _MOST_OF_A_VALUE else text[: _MOST_OF_A_VALUE - 3] + '...'}"
        )
    text = ", ".join(parts)
    return text if len(text) <= _MOST_OF_A_RECORD else text[: _MOST_OF_A_RECORD - 3] + "..."


def reason(error: BaseException) -> str:
    """The exception in one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def line(error: BaseException) -> str | None:
    """``file:line`` in the user's code where the exception was raised; None if it was not raised there."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _OURS not in frame.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
