"""How a job runs, as opposed to what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millstream.client.connect import Connection
from millstream.pipeline.run.bounded.planner import RunBounds
from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.status_writer import StatusWriter


@dataclass(slots=True)
class JobSettings:
    """How a job runs, as opposed to what it does."""

    connection: Connection
    checkpoint: str
    views: str | Path | None = None  # a file or a URL; None: beside the checkpoint
    trigger: str | None = None  # the interval between batches; None: one after the other
    available_now: bool = False  # read what is there, then end
    create_topics: bool = False  # source topics too
    new_ledger: bool = False  # forget what the group's offsets say is done
    start: str | None = None  # where a first run begins, whatever the sources say
    again: bool = False  # an earlier run of the same command failed: it may have begun there
    bounds: RunBounds = field(default_factory=RunBounds)  # with available_now: where it ends, what it closes
    reset: tuple[str, ...] = ()  # operators that give up their state
    skip_lost: bool = False  # continue where records were deleted before they were read
    rebuild: bool = False  # only rebuild the views, beside those that are there
    transaction_timeout_s: float = 300.0  # after which a transaction that nobody ends is aborted
    on_progress: Callable[[BatchProgress], None] = field(default=lambda progress: None)
    on_trouble: Callable[[str], None] = field(default=lambda text: None)  # called with what was overcome
    status: StatusWriter | None = None  # tells others what the job does; the job's caller ends it

    @property
    def options(self) -> dict[str, str]:
        """The options of ``format("millstream")`` that lead to the broker."""
        secrets = {f"kafka.{name}": value for name, value in self.connection.options.items()}
        return {"bootstrap": self.connection.address, **secrets}
