"""Runs an example: its generator, its pipeline on Spark, a reader of its results, and the check."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.stage.example_panel import ExamplePicture, display, ending
from millstream.cli.stage.stage import Stage, StoppedByUser, remove
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.core.errors import ConfigError
from millstream.core.interrupts import Interrupts
from millstream.examples.example import Example, Score
from millstream.examples.feed import Feed, now_ms
from millstream.jobs.report import TOPIC as STATUS_TOPIC

if TYPE_CHECKING:
    from millstream.pipeline.run.job import Job

_PATIENCE = 60.0  # seconds that a batch may take, once the last event has been sent
_QUIET = 8.0  # seconds without a new result after which no more are expected


def play(
    example: Example,
    seconds: float,
    *,
    address: str | None,
    seed: int,
    home: Path | None,
    master: str,
    console: bool = False,
    open_: bool = False,
) -> int:
    """Run an example from starting the broker to the check, and return the exit code. ``home`` is given if
    everything is to be kept there.
    """
    with Interrupts() as interrupts, ExitStack() as closing:
        if home is None:
            place = Path(tempfile.mkdtemp(prefix=f"millstream-{example.name}-"))
            closing.callback(remove, place)
        else:
            place = home
            remove(place)
            place.mkdir(parents=True)
        try:
            stage = _Example(example, place, interrupts, closing, keep=home is not None)
            with stage.screen:
                stage.set_up(seconds, address=address, seed=seed, master=master, console=console, open_=open_)
                stage.finish()
            good = stage.sum_up()
            if home is not None:
                stage.look_around()
                stage.stay()
        except StoppedByUser:
            print("the example was stopped", flush=True)
            return 0
    return 0 if good else 1


class ResultReader(threading.Thread):
    """Reads the topics of results as any consumer would, on its own thread."""

    def __init__(self, connection: Connection, topics: Sequence[str]) -> None:
        super().__init__(name="reader of results", daemon=True)
        with Admin(connection) as admin:
            places = admin.partitions(topics)
        self._reader = PartitionReader(connection, dict.fromkeys(places, 0))
        self._ended = threading.Event()
        self.error: Exception | None = None
        self.rows: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
        self.recent: deque[tuple[str, dict[str, Any]]] = deque(maxlen=12)
        self.last = time.monotonic()  # when the newest result arrived

    @property
    def total(self) -> int:
        return sum(len(rows) for rows in self.rows.values())

    def end(self) -> None:
        self._ended.set()
        self.join(5)

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                for message in self._reader.read(500, 0.1):
                    self.last = time.monotonic()
                    if message.value() is not None:
                        row = json.loads(message.value())
                        self.rows[message.topic()].append(row)
                        self.recent.appendleft((message.topic(), row))
            self._reader.close()
        except Exception as error:
            self.error = error


class _Example(Stage[ExamplePicture]):
    """One example, from its first event to its score."""

    _feed: Feed
    _rows: ResultReader

    def __init__(
        self, example: Example, home: Path, interrupts: Interrupts, closing: ExitStack, *, keep: bool
    ) -> None:
        super().__init__(home, display(example), ExamplePicture(), interrupts, closing)
        self._example = example
        self._keep = keep
        self._began = 0.0

    # ---- setting up ---------------------------------------------------------------------------------

    def set_up(
        self, seconds: float, *, address: str | None, seed: int, master: str, console: bool, open_: bool
    ) -> None:
        from millstream.pipeline.dsl.load import load_topology
        from millstream.pipeline.planning.plan import plan

        example = self._example
        connection = self.start_broker() if address is None else self._reach(address)
        flow = load_topology(example.pipeline)
        planned = plan(flow)
        generated = [topic for topic in planned.reads if topic not in planned.writes]
        self._make_topics(connection, flow.name, generated, planned.writes, own=address is None)

        span = seconds * example.speed
        generator = example.generator(
            seed=seed, start_ms=now_ms() - round(1000 * (span - seconds)), seconds=span
        )
        self._feed = Feed(connection, generator, speed=example.speed)
        self._rows = ResultReader(connection, list(example.results))
        if not console:
            self.picture.console = f"`millstream console --broker {connection.address}` shows it meanwhile"
        self.picture.wanted, self._began = seconds, time.monotonic()
        self.start_part(self._rows)
        self.start_part(self._feed)
        self.start_job(
            flow,
            connection,
            title=f"millstream example {example.name}",
            master=master,
            planning="planning the pipeline",
            console=console,
            open_=open_,
        )
        while not self.picture.processed:
            self.breathe()
        self.done(f"pipeline {flow.name} is running ({flow.guarantee})")
        self.picture.phase = "playing"
        while self._feed.is_alive():
            self.breathe()

    def _reach(self, address: str) -> Connection:
        began = self.begin(f"looking for the broker at {address}")
        connection = Connection.of(address)
        connection.check()
        self.picture.address = address
        self.done(f"broker at {address}", began)
        return connection

    def _make_topics(
        self,
        connection: Connection,
        job: str,
        generated: Sequence[str],
        written: Sequence[str],
        *,
        own: bool,
    ) -> None:
        """Create all topics of the example. None may exist: its records would count as the example's own."""
        topics = dict.fromkeys((*generated, *written))
        with Admin(connection) as admin:
            known = admin.topics()
            there = [topic for topic in topics if topic in known]
            if there:
                raise ConfigError(
                    f"the broker at {connection.address} has {', '.join(there)} already, and the example"
                    " would mistake their records for its own; leave out --broker, or delete the"
                    " topics if you"
                    f" don't need them: `millstream topic delete {' '.join(there)}`"
                )
            if not own and not self._keep:
                before = STATUS_TOPIC in known
                self.closing.callback(leave_nothing, connection, list(topics), job, jobs_before=before)
            for topic in topics:
                admin.create_topic(topic, partitions=self._example.partitions if topic in generated else 1)

    # ---- playing ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until everything sent is processed and its results have arrived. That is when everything
        planted is found, or when nothing new has come for a while.
        """
        self.picture.phase = "finishing what is under way"
        assert self.job is not None
        while self._behind(self.job) and time.monotonic() - self.progressed < _PATIENCE:
            self.breathe()
        since = time.monotonic()
        while not self._example.reached(self._scores()):
            if time.monotonic() - max(since, self._rows.last) > _QUIET:
                break
            self.breathe()
        settled = time.monotonic() + 1.0  # wrong results may still arrive, and must be counted
        while time.monotonic() < settled:
            self.breathe()

    def _behind(self, job: Job) -> int:
        """The number of generated records that are not processed yet, summed over all queries."""
        return sum(
            max(
                0,
                sum(self._feed.sent_to(source.topic) for source in query.sources)
                - self.processed.get(query.name, 0),
            )
            for query in job.plan.queries
        )

    def _scores(self) -> list[Score]:
        rows = {topic: list(found) for topic, found in self._rows.rows.items()}
        return self._example.check(list(self._feed.generator.planted), rows)

    def look(self) -> None:
        if not self._began:
            return
        picture = self.picture
        picture.live = time.monotonic() - self._began
        if hasattr(self, "_feed"):
            picture.sent = self._feed.sent
            picture.planted = len(self._feed.generator.planted)
            picture.results = {topic: len(rows) for topic, rows in self._rows.rows.items()}
            picture.recent = list(self._rows.recent)

    # ---- ending -------------------------------------------------------------------------------------

    def sum_up(self) -> bool:
        """Print what was found, compared with what was planted. True if the example reached its target."""
        scores = self._scores()
        good = self._example.reached(scores)
        ending(self._example, scores, self.picture, self._view(), good=good)
        return good

    def _view(self) -> tuple[list[str], list[list[Any]]]:
        from millstream.views.opening import open_reader

        reader = open_reader(self.home / "pipeline" / "views.db")
        try:
            columns, rows = reader.all(self._example.view)
            return list(columns), [list(row) for row in rows]
        finally:
            reader.close()

    def look_around(self) -> None:
        address, example = self.picture.address, self._example
        views = self.home / "pipeline" / "views.db"
        if self.picture.console.startswith("http"):
            print(f"The console is at {self.picture.console}")
        print("Everything is still there. In another terminal:")
        for command in (
            f"millstream topic list --broker {address}",
            *(f"millstream consume {topic} -o start -n 3 --broker {address}" for topic in example.results),
            *([] if self.picture.console.startswith("http") else [f"millstream console --broker {address}"]),
            f"millstream view query {example.view} --views {views}",
        ):
            print(f"  {command}")


def leave_nothing(connection: Connection, topics: Sequence[str], job: str, *, jobs_before: bool) -> None:
    """Clean up a broker that was running before: delete the topics, and the status of the job, which won't
    run again. The topic of job statuses is deleted if it was not there before, unless another job reports
    in it by now.
    """
    with Admin(connection) as admin:
        admin.delete_topics(topics)
        if STATUS_TOPIC not in admin.topics():
            return
        if jobs_before or _others_tell(connection, admin, job):
            send_one(connection, STATUS_TOPIC, Outgoing(None, job.encode()))
        else:
            admin.delete_topics([STATUS_TOPIC])


def _others_tell(connection: Connection, admin: Admin, job: str) -> bool:
    bounds = admin.bounds(admin.partitions([STATUS_TOPIC]))
    filled = {place: found for place, found in bounds.items() if found.start < found.end}
    reader = PartitionReader(
        connection,
        {place: found.start for place, found in filled.items()},
        {place: found.end for place, found in filled.items()},
    )
    try:
        while not reader.finished:
            if any(message.key() != job.encode() for message in reader.read(500, 0.5)):
                return True
    finally:
        reader.close()
    return False
