"""Tasks that fail as tasks do: after they have sent, or because of what another one did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millstream.errors import BrokerUnavailable
from millstream.pipeline.sending import SendInTransaction


def after_sending() -> None:
    raise BrokerUnavailable("the task was lost after it had sent")


def once(marker: Path, fault: Callable[[], None]) -> type[SendInTransaction]:
    """The sending task with a fault after its work, in one task of all that ever run: the one that makes the
    ``marker``."""

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
