"""What became of a batch, as its delivery reports it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class DeliveryReport:
    """What became of a batch: rows by sink, milliseconds by step, and how often it was retried."""

    rows: dict[str, int]
    steps: dict[str, float] = field(default_factory=dict)
    repeats: int = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + 1000 * (time.perf_counter() - began)
