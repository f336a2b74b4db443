"""Which runs of which jobs there are, from the records of ``millstream.jobs``. No I/O; time is passed in.

Rules. A job is shown with the run that reported last. A run before it is shown as well only if it still
reports after the newest one began: then two processes run the same job. Everything else is history.

Whether a run is alive. A run promises a status every ``heartbeat_ms``. If it misses several, it was killed,
or is cut off from the broker. The age of its last status is the time now minus the record's timestamp. That
timestamp is the broker's, and the time now is the reader's, and the two clocks may differ. So:

- Each record that arrives while the reader waits shows what time it is at the broker.
- A status from a job on the reader's own machine compares the clocks too: it has the time at which it was
  sent, by the clock that the reader also has, and the broker's timestamp.
- Until there is either, the reader's own clock is trusted if it finds a run alive. If it finds one silent, or
  a record from the future, the run is ``in_doubt``: the reader listens for a while (``reader.JobReader``). A
  run that says nothing in that time is silent.
- A clock that is off by more than a day is not expected. A job that was silent for longer is not waited for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from millstream.jobs.report import RUNNING, DisplayedState, JobStatus, decoded, patience_ms, state_now

_SLACK_MS = 2000  # by which clocks differ without anyone noticing
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run as it reported last. ``heard_ms`` is when, by the broker's clock, and ``silent_ms`` how long ago
    that is."""

    status: JobStatus
    state: DisplayedState
    heard_ms: int
    silent_ms: int

    @property
    def runs(self) -> bool:
        return self.state in RUNNING

    @property
    def where(self) -> str:
        return f"process {self.status.pid} on {self.status.host}"


class _Heard:
    """The records of one run: the first and the last offset, and the last value."""

    def __init__(self, offset: int) -> None:
        self.first = self.last = offset
        self.timestamp = 0
        self.value = b""
        self._parsed: tuple[bytes, JobStatus | None] = b"", None

    @property
    def status(self) -> JobStatus | None:
        if self._parsed[0] is not self.value:
            self._parsed = self.value, decoded(self.value)
        return self._parsed[1]


class Board:
    """All jobs that have reported. ``take`` its records in the order of their offsets."""

    def __init__(self, machine: str = "") -> None:
        self._machine = machine  # the reader's (``report.JobStatus.machine``)
        self._jobs: dict[str, dict[str, _Heard]] = {}
        self._live_ahead_ms: int | None = None  # by the record that arrived last
        self._newest_ms = 0
        self._given_up: set[tuple[str, str]] = set()  # runs that said nothing while the reader listened

    def take(
        self,
        name: str,
        value: bytes | None,
        *,
        offset: int,
        timestamp: int,
        run: str | None = None,
        arrived_ms: int | None = None,
    ) -> None:
        """A record. ``run`` is from its header. ``arrived_ms`` is the reader's time if it came just now."""
        self._newest_ms = max(self._newest_ms, timestamp)
        if arrived_ms is not None:
            self._live_ahead_ms = timestamp - arrived_ms
        if value is None:
            self._jobs.pop(name, None)
            return
        run = _run_in(value) if run is None else run
        heard = self._jobs.setdefault(name, {}).setdefault(run, _Heard(offset))
        heard.last, heard.timestamp, heard.value = offset, timestamp, value
        self._given_up.discard((name, run))

    def now_ms(self, own_ms: int) -> int:
        """The broker's time, as far as it is known. ``own_ms`` is the reader's."""
        return max(self._newest_ms, own_ms + (self._ahead_ms() or 0))

    def _ahead_ms(self) -> int | None:
        """How far the broker's clock is ahead of the reader's; None if that is not known."""
        if self._live_ahead_ms is not None or not self._machine:
            return self._live_ahead_ms
        statuses = [
            (heard.timestamp, status)
            for runs in self._jobs.values()
            for heard in runs.values()
            if (status := heard.status) is not None and status.machine == self._machine
        ]
        # A status may have been under way for seconds, but never for less than nothing.
        return min((timestamp - status.at_ms for timestamp, status in statuses), default=None)

    def names(self) -> list[str]:
        """The jobs, including those whose last record can't be read."""
        return sorted(self._jobs, key=str.casefold)

    def runs(self, name: str, own_ms: int) -> list[JobRun]:
        """The runs of a job: the one that reported last, then others that are alive beside it. Empty if the
        job is unknown, or its last record is not a status."""
        known = sorted(self._jobs.get(name, {}).items(), key=lambda each: -each[1].last)
        if not known:
            return []
        newest = known[0][1]
        found = []
        for run, heard in known:
            status = heard.status
            if status is None:
                continue
            shown = self._shown(name, run, heard, status, own_ms)
            if heard is newest or (heard.last > newest.first and shown.runs):
                found.append(shown)
        return found

    def _shown(self, name: str, run: str, heard: _Heard, status: JobStatus, own_ms: int) -> JobRun:
        silent_ms = max(0, self.now_ms(own_ms) - heard.timestamp)
        state = state_now(status.state, silent_ms, status.heartbeat_ms)
        if state in RUNNING and (name, run) in self._given_up:
            state = "silent"
        return JobRun(status, state, heard.timestamp, silent_ms)

    def run(self, name: str, run: str, own_ms: int) -> JobRun | None:
        """One run, whether it is history or not."""
        heard = self._jobs.get(name, {}).get(run)
        status = None if heard is None else heard.status
        return None if heard is None or status is None else self._shown(name, run, heard, status, own_ms)

    def successor(self, name: str, run: str, own_ms: int) -> JobRun | None:
        """The run that a restart of ``run`` has started, in the same process."""
        for other, heard in self._jobs.get(name, {}).items():
            if heard.status is not None and heard.status.previous == run:
                return self._shown(name, other, heard, heard.status, own_ms)
        return None

    # Doubt -------------------------------------------------------------------------------------------

    def in_doubt(self, own_ms: int) -> list[JobRun]:
        """The runs that may be alive or not, because the clocks may differ."""
        if self._ahead_ms() is not None:
            return []
        return [
            run for name in self._jobs for run in self.runs(name, own_ms)[:1] if self._doubts(run, own_ms)
        ]

    def _doubts(self, run: JobRun, own_ms: int) -> bool:
        status = run.status
        if status.state not in RUNNING or (status.job, status.run) in self._given_up:
            return False
        age_ms = own_ms - run.heard_ms
        return age_ms < -_SLACK_MS or patience_ms(status.heartbeat_ms) < age_ms < _DAY_MS

    def give_up(self, own_ms: int) -> None:
        """The reader has listened long enough: what is still in doubt is silent."""
        self._given_up |= {(run.status.job, run.status.run) for run in self.in_doubt(own_ms)}


def _run_in(value: bytes) -> str:
    try:
        return str(json.loads(value)["run"])
    except (ValueError, TypeError, KeyError):
        return ""
