"""The result of an append: what the producer's response says about the batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple


class Appended(NamedTuple):
    """The result of an append."""

    base_offset: int
    log_append_time: int  # -1 for CreateTime
    log_start_offset: int
    duplicate: bool  # the batch was already in the log, at base_offset


# Calling the class runs a Python function. This is as fast as building a plain tuple.
appended: Callable[[tuple[int, int, int, bool]], Appended] = partial(tuple.__new__, Appended)
