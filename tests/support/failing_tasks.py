"""Spark tasks that fail as real ones do: after they have sent, or because of what another task did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millstream.core.errors import BrokerUnavailable
from millstream.pipeline.run.delivery.sending import SendInTransaction


def after_sending() -> None:
    raise BrokerUnavailable("the task was lost after it had sent")


def once(marker: Path, fault: Callable[[], None]) -> type[SendInTransaction]:
    """The sending task, with a fault after the work of exactly one task: the one that creates ``marker``."""

    class Failing(SendInTransaction):
        def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
            got_some = False
            for batch in super().__call__(batches):
                got_some = got_some or batch.num_rows > 0
                yield batch
            if got_some:
                try:
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return
                fault()

    return Failing
