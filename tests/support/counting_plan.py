"""A small stateful operator for tests: it numbers the events of each key, and forgets keys after a while."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.pipeline.kernel.channels import MAIN
from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.program import ProgramOutput, Rows
from millstream.pipeline.kernel.state.store import StateStore


@dataclass(frozen=True)
class Count:
    """The plan of the operator. If the file ``fail_at`` exists, the first task that finds it removes it, and
    fails after its work.
    """

    in_order: ClassVar[bool] = False
    time_to_live_us: int = 60_000_000
    fail_at: str | None = None

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {MAIN: pa.schema([inputs[0][0], pa.field("n", pa.int64())])}

    def program(self, inputs: Sequence[pa.Schema]) -> Any:
        return Counting(self)

    def shape(self) -> Mapping[str, object]:
        return {"time_to_live_us": self.time_to_live_us}

    def describe(self) -> str:
        return "numbered events"


class Counting:
    def __init__(self, plan: Count) -> None:
        self._plan = plan

    def open(self, store: StateStore) -> None:
        self._counts = store.keyed("counts")

    def rows(self, rows: Rows, clock: OperatorClock, out: ProgramOutput) -> None:
        keys = rows.table[0].to_pylist()
        self._counts.fetch(dict.fromkeys(keys))
        for key, time in zip(keys, rows.time.tolist(), strict=True):
            n = self._counts.get(key, 0) + 1
            self._counts.put(key, n, due=time + self._plan.time_to_live_us)
            out.row(MAIN, (key, n))
        if self._plan.fail_at is not None:
            try:
                os.remove(self._plan.fail_at)
            except FileNotFoundError:
                return
            raise ConnectionError("lost on the way")

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._counts.take_due(clock.watermark)

    def next_due(self) -> int | None:
        return self._counts.next_due()

    def next_timer(self) -> int | None:
        return None
