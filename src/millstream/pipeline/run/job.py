"""One run of a topology: checks its topics, then starts, watches and stops its queries."""

from __future__ import annotations

import difflib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import TransactionCoordinator
from millstream.core.errors import ConfigError, MillstreamError, TopologyError
from millstream.pipeline.connector.offsets import to_json
from millstream.pipeline.connector.ticks import Ticks
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.dsl.load import user_modules
from millstream.pipeline.dsl.stateful import Stateful
from millstream.pipeline.dsl.streams import REJECTED_COLUMNS, Rejected, Source
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.planning.evolving import check_columns, to_text
from millstream.pipeline.planning.identity import identity
from millstream.pipeline.planning.plan import Plan, Query, plan
from millstream.pipeline.run.checkpoint import REBUILD, TOPOLOGY, Checkpoint, Claim
from millstream.pipeline.run.ending import Round
from millstream.pipeline.run.lag_meter import LagMeter
from millstream.pipeline.run.ledger import Entry, Ledger
from millstream.pipeline.run.state_limit import StateLimit
from millstream.pipeline.run.transact import Transactions
from millstream.pipeline.spark.starting import TOO_SLOW, Starting, busy
from millstream.views.views import View, ViewsRebuilt, ViewStore, beside, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from millstream.pipeline.kernel.spark import Keeping
    from millstream.pipeline.run.deliver import Delivered, Delivery
    from millstream.pipeline.run.progress import Progress
    from millstream.pipeline.run.status_writer import StatusWriter


# What stateful operators on the kernel need: a store for state of any size, which writes only what changed.
# Spark's own windows are faster in its default store.
_STATE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


# For every batch that is handed to foreachBatch, Spark derives all that its plan says about its rows. With
# conditions over many columns, that grows as their combinations do, until memory runs out. Nothing that is
# done with a batch here benefits from it.
_PLAN_SETTINGS = {"spark.sql.constraintPropagation.enabled": "false"}


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change a session's settings for queries that start inside, each with the settings of that moment. The
    session is the user's, so its old settings are restored."""
    before = spark.conf.getAll
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    try:
        yield
    finally:
        for setting in settings:
            if setting in before:
                spark.conf.set(setting, before[setting])
            else:
                spark.conf.unset(setting)


_SETTING = threading.Lock()  # a query that is restarted must not start with the settings of another


def _started(spark: SparkSession, settings: Mapping[str, str], writer: DataStreamWriter) -> StreamingQuery:
    with _SETTING, _set(spark, settings):
        return writer.start()


_REBUILD_ROWS = 200_000
_REPORT_S = 5.0  # how long Spark may take to report a batch that is done
_CLEAN_UP_AFTER = 5  # minutes; by then a run that was taken over has noticed it
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(slots=True)
class Settings:
    """How a job is run, as opposed to what it does."""

    connection: Connection
    checkpoint: str
    views: str | Path | None = None  # a file or a URL; None: beside the checkpoint
    trigger: str | None = None  # the interval between batches; None: one after the other
    available_now: bool = False  # read what is there, then end
    create_topics: bool = False  # source topics too
    new_ledger: bool = False  # forget what the group's offsets say is done
    start: str | None = None  # where a first run begins, whatever the sources say
    again: bool = False  # an earlier run of the same command failed: it may have begun there
    round: Round = field(default_factory=Round)  # with available_now: where the run ends, and what it closes
    reset: tuple[str, ...] = ()  # operators that give up their state
    skip_lost: bool = False  # go on where records were deleted before they were read
    rebuild: bool = False  # only rebuild the views, beside those that are there
    transaction_timeout_s: float = 300.0  # after which a transaction that nobody ends is aborted
    on_progress: Callable[[Progress], None] = field(default=lambda progress: None)
    on_trouble: Callable[[str], None] = field(default=lambda text: None)  # called with what was overcome
    status: StatusWriter | None = None  # tells others what the job does; the job's caller ends it


class Job:
    """One run of a topology. ``prepare`` needs no Spark and finds most mistakes; ``start`` does the rest."""

    def __init__(self, flow: Topology, settings: Settings) -> None:
        self.flow = flow
        self.settings = settings
        self.plan: Plan = plan(flow)
        self.checkpoint = Checkpoint(settings.checkpoint, notes=REBUILD if settings.rebuild else TOPOLOGY)
        self.views = settings.views or (self.checkpoint.local or Path(".millstream") / flow.name) / "views.db"
        self._run = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._store: ViewStore | None = None
        self._listener: Any = None
        self._spark: SparkSession | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._starting: Starting | None = None
        self._staying: threading.Thread | None = None
        self._deliveries: dict[str, Delivery] = {}
        self._claimed: Claim | None = None
        self._groups: dict[str, str] = {}
        self._ticks = Ticks(settings.round.endings)
        self._last: dict[str, Progress] = {}
        self._lag = LagMeter(settings.connection)
        self._failure: MillstreamError | None = None
        self._limit = StateLimit(flow.max_state)
        # A rebuild runs beside the job itself, and under the job's name.
        self._status = None if settings.rebuild else settings.status
        self.own_views: list[View] = []
        self.bound = False  # True once the checkpoint is this topology's, with the resets that were asked for

    # ---- before Spark -------------------------------------------------------------------------------

    def prepare(self) -> list[str]:
        """Check the broker and the checkpoint. Returns the topics that were created."""
        self._check_transactions()
        if any(query.operators for query in self.plan.queries) and "://" in self.flow.state:
            from millstream.pipeline.kernel.state.external import reach

            reach(self.flow.state)
        created = self._topics()
        if self.checkpoint.local is not None:
            self._claim()
        if self._status is not None:
            self._status.begin(self)
        return created

    def _claim(self) -> None:
        settings = self.settings
        if not settings.rebuild:
            from millstream.pipeline.run.rebuild import settle

            settle(self.checkpoint, self.views, settings.connection, new_ledger=settings.new_ledger)
            if settings.start is not None and not settings.again and self.checkpoint.in_use():
                raise ConfigError(
                    f"the checkpoint {self.checkpoint.location} says where to go on, so there is no other"
                    " place to begin from; for a copy that begins elsewhere, give an --output-prefix that was"
                    " not used yet, or a new --checkpoint"
                )
        self._claimed = self.checkpoint.claim(self.flow, settings.reset)
        self.plan, self._groups = self._claimed.plan, self._claimed.groups

    def _check_transactions(self) -> None:
        if self.flow.guarantee == "exactly-once":
            connection = self.settings.connection
            connection.check()
            cluster = Cluster(connection, patience=connection.patience)
            try:
                if TransactionCoordinator(cluster).version() == 0:
                    raise TopologyError(
                        f"guarantee='exactly-once' needs transactions, and the cluster at"
                        f" {connection.address} has none; 'at-least-once' works with it",
                        where=self.flow.at,
                    )
            finally:
                cluster.close()

    def _topics(self) -> list[str]:
        with Admin(self.settings.connection) as admin:
            there = admin.topics()
            for source in (source for query in self.plan.queries for source in query.sources):
                topic = source.topic
                made_here = topic in self.plan.writes or self.settings.create_topics
                if topic not in there and not made_here:
                    near = difflib.get_close_matches(topic, there, n=1)
                    hint = f"did you mean {near[0]!r}? Otherwise create" if near else "create"
                    raise TopologyError(
                        f"there is no topic {topic!r} at {self.settings.connection.address}; {hint} it with"
                        f" `millstream topic create {topic}`, or run with --create-topics",
                        where=source.at,
                    )
            wanted = dict.fromkeys((*self.plan.reads, *self.plan.writes))
            made = dict.fromkeys(self.plan.changelogs, _COMPACTED)
            return [
                topic
                for topic in wanted
                if topic not in there
                and admin.create_topic(topic, if_not_exists=True, config=made.get(topic))
            ]

    # ---- running ------------------------------------------------------------------------------------

    def start(self, spark: SparkSession, *, stopping: Callable[[], bool] = lambda: False) -> None:
        """Plan every query on Spark, and only then start them. On a slow machine that takes a while. It
        ends early when ``stopping`` says that the job is no longer wanted."""
        from millstream.pipeline.formats.schema_encode import encode_function
        from millstream.pipeline.run.outgoing import output
        from millstream.pipeline.run.progress import Listener
        from millstream.pipeline.spark.frames import Frames

        hush_pyspark()
        _check_session(spark, self.flow)
        _ship_user_code()
        self._spark = spark
        self.checkpoint.attach(spark)
        if self.checkpoint.local is None:
            self._claim()
        claimed = self._claimed
        assert claimed is not None
        outputs = []
        columns: dict[str, dict[str, list[str]]] = {}
        counted = set(chain.from_iterable(graph(self.flow).counted)) if self._status is not None else set()
        for query in self.plan.queries:
            frames = Frames(
                partial(self._read, spark, query),
                run=self._run,
                output_mode=query.output_mode,
                keeping=partial(self._keeping, query),
                encode=partial(encode_function, spark),
                counted=counted,
            )
            for sink in query.sinks:
                frames.of(sink.stream)  # builds the whole way to every sink once, to find Spark's errors
            for tap in query.taps:
                check_supported(spark, frames.tap(tap), query.output_mode, tap.at)
            outputs.append((query, *output(query, frames)))
            inputs = frames.kernels.inputs
            check_columns(claimed.columns.get(query.name, {}), inputs, self.checkpoint.location)
            columns[query.name] = {name: to_text(schemas) for name, (_, schemas) in inputs.items()}
        if self.plan.views:
            self._store = open_store(self.views)
            for query, _, views in outputs:
                if (id_ := self.checkpoint.query_id(query.name)) is not None and self._store.held(id_):
                    raise MillstreamError(
                        "the views of this job are being rebuilt, and are about to take the place of the old"
                        " ones; start it again in a moment"
                    )
                for number, view in views.items():
                    self.own_views.append(view)
                    if self.settings.rebuild:  # the old views stay as they are until the swap
                        self._store.check(view, where=query.sinks[number].at)
                        views[number] = view = replace(view, name=beside("next", view.name))
                    self._store.prepare(view, where=query.sinks[number].at)
        titles = {self._title(query): query for query in self.plan.queries}
        for query, _, views in outputs:
            self._deliveries[query.name] = self._delivery(query, views)
        for delivery in self._deliveries.values():
            delivery.open()
        self.checkpoint.bind(replace(claimed, columns=columns))
        self.bound = True
        listener = Listener(titles, self._delivered, self._progressed)
        spark.streams.addListener(listener)
        self._listener = listener  # for close() to remove: Spark knows it only from here on
        # Each tap alone has passed Spark's check. Spark would also refuse several windows side by side in
        # update mode. Only windows over windows are wrong, and those are refused when they are declared.
        spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        starters: dict[str, Callable[[], Any]] = {}
        for query, rows, _ in outputs:
            delivery = self._deliveries[query.name]
            written = delivery.at_the_end_of(rows).writeStream
            writer = written.queryName(self._title(query)).outputMode(query.output_mode)
            writer = writer.option("checkpointLocation", self.checkpoint.query(query.name)).foreachBatch(
                delivery
            )
            if self.settings.available_now:
                writer = writer.trigger(availableNow=True)
            elif self.settings.trigger is not None:
                writer = writer.trigger(processingTime=self.settings.trigger)
            settings = {**delivery.spark_settings, **_PLAN_SETTINGS}
            settings |= _STATE_SETTINGS if query.operators else {}
            if (carry := self.settings.round.carries.get(query.name)) is not None:
                self.checkpoint.carry_watermark(query.name, carry.batch, carry.by_ms)
            starters[query.name] = partial(_started, spark, settings, writer)
        starting = self._starting = Starting(
            starters,
            say=self._say,
            begun=lambda name: self._deliveries[name].begun,
            stopping=lambda: stopping() or self._stopping.is_set(),
        )
        self._queries = starting.queries
        starting.run()
        self._staying = threading.Thread(
            target=self._stay, args=(starting,), name="first-batches", daemon=True
        )
        self._staying.start()
        if not self.settings.rebuild:  # the ledger belongs to the job that is running
            threading.Thread(target=self._keep_fresh, name="ledger-refresh", daemon=True).start()
        if self._status is not None:
            self._status.turned("running")

    def _title(self, query: Query) -> str:
        """The query's name in Spark, which runs only one query of a name at a time."""
        return f"{query.name} rebuilt" if self.settings.rebuild else query.name

    def _keeping(self, query: Query, operator: Stateful) -> Keeping:
        """Where an operator keeps its state: by its place in the query, which the checkpoint keeps."""
        from millstream.pipeline.kernel.spark import Keeping

        assert self._claimed is not None
        place = f"{self.checkpoint.identity}/{query.name}/{query.operators.index(operator)}"
        resets = self._claimed.resets.get(query.name, {}).get(identity(operator), 0)
        if resets:
            place += f"/{resets}"
        return Keeping(self.flow.state, place, self.flow.max_state)

    def _progressed(self, progress: Progress) -> None:
        try:
            self._ticks.after(progress)
        except MillstreamError as error:
            self._failure = error
        progress = replace(progress, lags=self._lags(progress.query))
        self._last[progress.query] = progress
        for warning in self._limit.after(progress):
            self._say(warning)
        if self._status is not None:
            self._status.progressed(progress)
        self.settings.on_progress(progress)

    def lags(self) -> dict[str, dict[str, int]]:
        """By query and topic, the records between what is committed and the topic's current end. What is
        not known is left out: nothing is committed yet, or the broker is away."""
        return {query.name: self._lags(query.name) for query in self.plan.queries}

    @property
    def lag(self) -> int | None:
        """The sum of all lags; None if none is known."""
        known = [sum(by_topic.values()) for by_topic in self.lags().values() if by_topic]
        return sum(known) if known else None

    def _lags(self, query: str) -> dict[str, int]:
        if not self.settings.rebuild:
            return self._lag.of_group(self._groups[query]) if query in self._groups else {}
        # A rebuild does not touch the group, which belongs to the job beside it.
        delivery = self._deliveries.get(query)
        last = None if delivery is None else delivery.last
        return {} if last is None else self._lag.of_offsets(last.offsets)

    def _say(self, trouble: str) -> None:
        if self._status is not None:
            self._status.troubled(trouble)
        self.settings.on_trouble(trouble)

    def _delivery(self, query: Query, views: dict[int, View]) -> Delivery:
        from millstream.pipeline.connector.options import WriteOptions
        from millstream.pipeline.run.changelog import Changelogs, changelogs_of
        from millstream.pipeline.run.deliver import Delivery

        connection = self.settings.connection
        cluster = Cluster(connection, patience=connection.patience)
        group = self._groups[query.name]
        transactions, changelogs = None, None
        guarantee = "rebuild" if self.settings.rebuild else self.flow.guarantee
        if guarantee == "exactly-once":
            transactions = Transactions(cluster, group, timeout_s=self.settings.transaction_timeout_s)
        if guarantee != "rebuild" and (told := changelogs_of(query)):
            options = WriteOptions.of(self._options())
            changelogs = Changelogs(told, views.values(), cluster, options)
        return Delivery(
            query,
            views,
            guarantee=guarantee,
            ledger=Ledger(cluster, group),
            transactions=transactions,
            cluster=cluster,
            checkpoint=self.checkpoint,
            store=self._store,
            to_topics=WriteOptions.of(self._options()),
            stopping=self._stopping,
            new_ledger=self.settings.new_ledger,
            changelogs=changelogs,
            say=self._say,
        )

    def _keep_fresh(self) -> None:
        """Keep the ledger of an idle query from expiring. An idle query must also notice that its views
        were rebuilt, because its checkpoint is about to be removed."""
        minutes = 0
        while not self._stopping.wait(60):
            minutes += 1
            for name, delivery in self._deliveries.items():
                delivery.refresh()
                id_ = self.checkpoint.query_id(name)
                if self._store is not None and id_ is not None:
                    try:
                        self._store.written(id_)
                    except ViewsRebuilt as rebuilt:
                        delivery.failure = rebuilt
                        return
            if minutes == _CLEAN_UP_AFTER:
                self.checkpoint.clean_up()

    def _read(self, spark: SparkSession, query: Query, source: Source) -> DataFrame:
        from millstream.pipeline.connector.source import COLUMNS
        from millstream.pipeline.formats.decode import plain_columns

        reader = spark.readStream.format("millstream")
        for name, value in self._options().items():
            reader = reader.option(name, value)
        # The job's own topics keep their start: another query may write before this one asks for the end.
        is_own = source.topic in self.plan.writes
        start = source.start if is_own else self.settings.start or source.start
        reader = reader.option("topic", source.topic).option("startingOffsets", start)
        if self.settings.skip_lost:
            reader = reader.option("failOnDataLoss", "false")
        if self.settings.round.until is not None:
            until = self.settings.round.until[query.name]
            own = {place: offset for place, offset in until.items() if place.topic == source.topic}
            reader = reader.option("endingOffsets", json.dumps(to_json(own)))
        # The group's offsets are the ledger, which is written with the results.
        reader = reader.option("groupId", self._groups[query.name]).option("commitOffsets", "false")
        bounds = [source.max_rows] if source.max_rows is not None else []
        if self.settings.rebuild:
            # The views' database is also the running job's, which must not have to wait long for it.
            bounds.append(_REBUILD_ROWS)
        if bounds:
            reader = reader.option("maxOffsetsPerTrigger", str(min(bounds)))
        is_endless = not self.settings.available_now
        if (query.operators and is_endless) or query.name in self.settings.round.endings:
            reader = reader.option("tickFile", str(self._ticks.file(query.name)))
        wanted = wanted_columns(query, source)
        columns = [f"{name} {kind}" for name, kind in COLUMNS.items() if name in wanted]
        if (plain := plain_columns(source)) is not None:
            columns.append(plain)
        return reader.schema(", ".join(columns)).load()

    def _options(self) -> dict[str, str]:
        connection = self.settings.connection
        secrets = {f"kafka.{name}": value for name, value in connection.options.items()}
        return {"bootstrap": connection.address, **secrets}

    def _delivered(self, query: str, batch: int) -> Delivered:
        from millstream.pipeline.run.deliver import Delivered

        return self._deliveries[query].delivered.pop(batch, None) or Delivered({})

    @property
    def entries(self) -> dict[str, Entry]:
        """The last delivered batch of each query, as far as this run knows."""
        return {
            name: delivery.last for name, delivery in self._deliveries.items() if delivery.last is not None
        }

    @property
    def unkeyed(self) -> int:
        """Rows that were left out of a view because their key was null."""
        return sum(delivery.unkeyed for delivery in self._deliveries.values())

    @property
    def waiting(self) -> str | None:
        """Why a batch has not been delivered yet and is retried; None if all is well."""
        deliveries = list(self._deliveries.values())  # other threads ask, also while the job starts
        return next((each.waiting for each in deliveries if each.waiting is not None), None)

    @property
    def running(self) -> bool:
        return any(query.isActive or self._comes_back(name) for name, query in self._queries.items())

    def _comes_back(self, query: str) -> bool:
        return self._starting is not None and self._starting.comes_back(query)

    def last_progress(self, patience: float = 30.0) -> dict[str, Progress]:
        """The last batch of each query, once all queries have ended. Waits for Spark, which reports a batch
        a little later than it ends the query."""
        deadline = time.monotonic() + patience
        for name, query in self._queries.items():
            while (
                (done := query.lastProgress) is not None
                and "addBatch" in done.durationMs  # without it, the query found nothing and ran no batch
                and (name not in self._last or self._last[name].batch < done.batchId)
                and time.monotonic() < deadline
            ):
                time.sleep(0.01)
        return self._last

    def failed(self) -> MillstreamError | None:
        """Why a query ended by itself; None if none did, or if all is well."""
        from millstream.pipeline.spark.causes import condensed, line_in

        for delivery in self._deliveries.values():
            if delivery.failure is not None:
                return delivery.failure
        if (problem := self._limit.exceeded or self._failure) is not None:
            return problem
        for name, query in self._queries.items():
            if query.isActive or self._stopping.is_set() or self._comes_back(name):
                continue
            error = query.exception()
            assert self._starting is not None
            if error is not None and not self._deliveries[name].begun and TOO_SLOW.search(str(error)):
                return MillstreamError(
                    f"query {name!r} could not be started in {self._starting.attempts[name]} attempts: Spark"
                    f" waits 10 s for a Python process, and {busy()}. Nothing was lost. Start the job again"
                    " when the machine has less to do, or with --restart on-failure"
                )
            if error is not None:
                return TopologyError(f"query {name!r} failed: {condensed(error)}", where=line_in(str(error)))
        return None

    def tell(self, error: MillstreamError) -> None:
        """Report to others why the job has ended. For processes that go on after it."""
        if self._status is not None:
            self._status.failed(error)

    def stop(self, patience: float = 60.0) -> None:
        """End between two batches. What was read but not delivered is read again by the next run.

        A delivery in progress is waited for. A query that has begun a batch ends itself when it comes to
        deliver it; an idle query is stopped. (Spark can't interrupt a thread that waits for Python, so to
        stop a query in the middle of a delivery would only wait, and then fail.)
        """
        self._no_more_starts()
        deadline = time.monotonic() + patience
        for query in self._queries.values():
            while query.isActive and time.monotonic() < deadline:
                if str(query.status["message"]).startswith("Waiting"):
                    query.stop()
                time.sleep(0.02)
        self.last_progress(_REPORT_S)  # so that the batch in progress is counted too
        self.close()

    @staticmethod
    def _stay(starting: Starting) -> None:
        with suppress(Exception):  # the JVM is gone, which everything else notices too
            starting.stay()

    def _no_more_starts(self) -> None:
        self._stopping.set()
        if self._staying is not None:
            self._staying.join()

    def close(self) -> None:
        """Release the listener, the deliveries and the views; the session is the caller's."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        if self._spark is not None and self._listener is not None:
            with suppress(Py4JError):  # the JVM is gone, and the listener with it
                self._spark.streams.removeListener(self._listener)
            self._listener = None
        self._no_more_starts()
        for delivery in self._deliveries.values():
            delivery.close()
        self._ticks.close()
        self._lag.close()
        if self._store is not None:
            self._store.close()
            self._store = None


def check_supported(spark: SparkSession, frame: DataFrame, mode: str, at: str) -> None:
    """Applies Spark's own check of what a streaming query may do, to the rows of one tap."""
    from millstream.pipeline.spark.causes import condensed

    java: Any = spark._jvm
    modes = java.org.apache.spark.sql.streaming.OutputMode
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), modes.Append() if mode == "append" else modes.Update()
        )
    except Exception as error:
        raise TopologyError(f"Spark can't run this as a stream: {condensed(error)}", where=at) from error


def _check_session(spark: SparkSession, flow: Topology) -> None:
    """Refuses settings of Spark's under which a task may run twice without anyone noticing."""
    if flow.guarantee != "exactly-once":
        return
    conf = spark.sparkContext.getConf()
    if str(conf.get("spark.speculation", "false")).lower() == "true":
        raise TopologyError(
            "guarantee='exactly-once' and spark.speculation=true: a task that runs twice at once writes"
            " twice. Turn speculation off",
            where=flow.at,
        )
    if conf.get("spark.stage.maxConsecutiveAttempts") != "1":
        raise TopologyError(
            "guarantee='exactly-once' needs spark.stage.maxConsecutiveAttempts=1: Spark repeats a stage"
            " without telling its tasks, and what they had sent already would be lost. Set it where the"
            " session is made; `millstream run` does",
            where=flow.at,
        )


def wanted_columns(query: Query, source: Source) -> set[str]:
    """The columns of a record that the query needs. Others are neither decoded nor carried to the JVM."""
    wanted = {"value", *source.include}
    if source.time is not None and source.time.kind == "log":
        wanted.add("timestamp")
    if source.table is not None:  # a deletion is only a key and a time
        wanted |= {"key", "timestamp"}
    if query.operators:
        wanted |= {"partition", "offset"}
    for tap in query.taps:
        if any(isinstance(stream, Rejected) and stream.source is source for stream in tap.upstream()):
            wanted |= set(REJECTED_COLUMNS)
    return wanted


def hush_pyspark() -> None:
    """Silences PySpark, which logs every failed analysis, with its whole plan, before it raises it. The
    error is reported once, by the code that catches it."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).disabled = True


def _ship_user_code() -> None:
    """Executors can't import the user's file or the modules beside it, so these travel with the job. A
    worker that had imported them would also keep the old code after the file was changed."""
    from pyspark import cloudpickle

    for module in user_modules().values():
        cloudpickle.register_pickle_by_value(module)
