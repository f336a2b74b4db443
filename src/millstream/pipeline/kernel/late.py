"""Tells late rows from those on time, and emits them on their input's late channel.

A row is judged by the watermark of its own partition (``clock.py``), which the row brings along. An event is
late if it is older than that watermark. A row that counts in windows is late if the last of its windows has
ended by then.
"""

from __future__ import annotations

from typing import Any

from millstream.pipeline.kernel.clock import Times
from millstream.pipeline.kernel.program import ProgramOutput, Rows


def is_late(rows: Rows) -> Any:
    """Which rows are older than their watermark."""
    return rows.time < rows.watermark


def split_late(rows: Rows, out: ProgramOutput, *, ends: Times | None = None) -> Any | None:
    """Emit the late rows. Returns which rows are on time, or None if all are. ``ends`` is the end of each
    row's last window, if the rows count in windows."""
    late = is_late(rows) if ends is None else ends <= rows.watermark
    if not late.any():
        return None
    old = rows.take(late)
    out.late(old, old.watermark - (old.time if ends is None else ends[late]))
    return ~late
