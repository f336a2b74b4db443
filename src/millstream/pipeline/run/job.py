"""One run of a topology: checks its topics, then starts, watches and stops its queries."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client.protocol.cluster import Cluster
from millstream.core.errors import ConfigError, MillstreamError, TopologyError
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.planning.plan import Plan, Query, plan
from millstream.pipeline.run.broker_setup import check_transactions, create_topics, unmatched_patterns
from millstream.pipeline.run.checkpoint.checkpoint import REBUILD, TOPOLOGY, Checkpoint, Continuation
from millstream.pipeline.run.delivery.ledger import Ledger, LedgerEntry
from millstream.pipeline.run.delivery.transactions import QueryTransactions
from millstream.pipeline.run.rebuild.settling import settle
from millstream.pipeline.run.reporting.lag_meter import LagMeter
from millstream.pipeline.run.settings import JobSettings
from millstream.pipeline.run.state_limit import StateLimit
from millstream.pipeline.run.tick_schedule import TickSchedule
from millstream.pipeline.spark.query_starts import TOO_SLOW, QueryStarter, busy, in_turn
from millstream.views.naming import beside
from millstream.views.opening import open_store
from millstream.views.views import View, ViewsRebuilt, ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from millstream.pipeline.run.delivery.delivery import Delivery
    from millstream.pipeline.run.delivery.report import DeliveryReport
    from millstream.pipeline.run.queries import PlannedQuery
    from millstream.pipeline.run.reporting.progress import BatchProgress


_REPORT_S = 5.0  # how long Spark may take to report a batch that is done
_CLEAN_UP_AFTER = 5  # minutes; by then a run that was taken over has noticed it


class Job:
    """One run of a topology. ``prepare`` needs no Spark and finds most mistakes; ``start`` does the rest."""

    def __init__(self, flow: Topology, settings: JobSettings) -> None:
        self.flow = flow
        self.settings = settings
        self.plan: Plan = plan(flow)
        self.checkpoint = Checkpoint(settings.checkpoint, notes=REBUILD if settings.rebuild else TOPOLOGY)
        self.views = settings.views or (self.checkpoint.local or Path(".millstream") / flow.name) / "views.db"
        self._run = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._closed = False
        self._store: ViewStore | None = None
        self._listener: Any = None
        self._lent = ExitStack()  # what is changed in the user's process as long as the job runs
        self._spark: SparkSession | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._starting: QueryStarter | None = None
        self._staying: threading.Thread | None = None
        self._deliveries: dict[str, Delivery] = {}
        self._claimed: Continuation | None = None
        self._groups: dict[str, str] = {}
        self._ticks = TickSchedule(settings.bounds.endings)
        self._last: dict[str, BatchProgress] = {}
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
        check_transactions(self.plan, self.settings)
        if any(query.operators for query in self.plan.queries) and "://" in self.flow.state:
            from millstream.pipeline.kernel.state.backends import reach

            reach(self.flow.state)
        created = create_topics(self.plan, self.settings)
        if self.checkpoint.local is not None:
            self._claim()
        if self._status is not None:
            self._status.begin(self)
        return created

    def unmatched(self) -> list[str]:
        """What to say about patterns that no topic matches yet. That is no error: the job reads such a topic
        from its beginning once there is one."""
        found = unmatched_patterns(self.plan, self.settings)
        at = self.settings.connection.address
        then = "there is nothing to read" if self.settings.available_now else "the job waits for one"
        return [f"no topic at {at} matches {pattern} yet: {then}" for pattern in found]

    def _claim(self) -> None:
        settings = self.settings
        if not settings.rebuild:
            settle(self.checkpoint, self.views, settings.connection, new_ledger=settings.new_ledger)
            if settings.start is not None and not settings.again and self.checkpoint.in_use():
                raise ConfigError(
                    f"the checkpoint {self.checkpoint.location} already says where to continue, so the job"
                    " can't start elsewhere. For a copy that starts elsewhere, give a new --output-prefix"
                    " or a new --checkpoint"
                )
        self._claimed = self.checkpoint.claim(self.flow, settings.reset)
        self.plan, self._groups = self._claimed.plan, self._claimed.groups

    # ---- running ------------------------------------------------------------------------------------

    def start(self, spark: SparkSession, *, stopping: Callable[[], bool] = lambda: False) -> None:
        """Plan every query on Spark, and only then start them. On a slow machine that takes a while. It
        ends early when ``stopping`` says that the job is no longer wanted."""
        from millstream.pipeline.spark.job_session import quiet_pyspark

        with quiet_pyspark():
            self._start(spark, stopping)

    def _start(self, spark: SparkSession, stopping: Callable[[], bool]) -> None:
        self._attach(spark)
        claimed = self._claimed
        assert claimed is not None
        queries = self._planned(spark, claimed)
        if self.plan.views:
            self._store = open_store(self.views)
            for one in queries:
                self._prepare_views(one, self._store)
        for one in queries:
            self._deliveries[one.query.name] = self._delivery(one.query, one.views)
        for delivery in self._deliveries.values():
            delivery.open()
        self.checkpoint.bind(replace(claimed, columns={one.query.name: one.columns for one in queries}))
        self.bound = True
        self._listen(spark)
        self._start_queries(spark, queries, stopping)
        if not self.settings.rebuild:  # the ledger belongs to the job that is running
            threading.Thread(target=self._keep_fresh, name="ledger-refresh", daemon=True).start()
        if self._status is not None:
            self._status.turned("running")

    def _attach(self, spark: SparkSession) -> None:
        from millstream.pipeline.run.delivery.delivery import BatchStopped
        from millstream.pipeline.spark.job_session import (
            check_session,
            load_pandas,
            quiet_failures,
            shipped_code,
        )

        check_session(spark, self.flow)
        load_pandas()
        self._lent.enter_context(shipped_code(self.flow))
        reported = (BatchStopped, MillstreamError)
        self._lent.enter_context(quiet_failures(lambda error: isinstance(error, reported)))
        self._spark = spark
        self.checkpoint.files.attach(spark)
        if self.checkpoint.local is None:
            self._claim()

    def _planned(self, spark: SparkSession, claimed: Continuation) -> list[PlannedQuery]:
        from millstream.pipeline.formats.schema_encode import encode_functions
        from millstream.pipeline.run.queries import QueryBuilder

        counted = set(chain.from_iterable(graph(self.flow).counted)) if self._status is not None else set()
        with encode_functions(spark) as encode:
            builder = QueryBuilder(
                spark,
                self.settings,
                self.checkpoint,
                claimed,
                self._ticks,
                run=self._run,
                encode=encode,
                counted=counted,
            )
            return [builder.planned(query) for query in self.plan.queries]

    def _prepare_views(self, planned: PlannedQuery, store: ViewStore) -> None:
        query, views = planned.query, planned.views
        if (id_ := self.checkpoint.logs.query_id(query.name)) is not None and store.held(id_):
            raise MillstreamError(
                "the rebuilt views of this job are about to replace the old ones; start the job again in a"
                " moment"
            )
        for number, view in views.items():
            self.own_views.append(view)
            if self.settings.rebuild:  # the old views stay as they are until the swap
                store.check(view, where=query.sinks[number].at)
                views[number] = view = replace(view, name=beside("next", view.name))
            store.prepare(view, where=query.sinks[number].at)

    def _listen(self, spark: SparkSession) -> None:
        from millstream.pipeline.run.reporting.spark_reports import ProgressListener

        titles = {self._title(query): query for query in self.plan.queries}
        listener = ProgressListener(titles, self._delivered, self._progressed)
        spark.streams.addListener(listener)
        self._listener = listener  # for close() to remove: Spark knows it only from here on

    def _start_queries(
        self, spark: SparkSession, queries: list[PlannedQuery], stopping: Callable[[], bool]
    ) -> None:
        starting = self._starting = QueryStarter(
            {one.query.name: self._starter(spark, one) for one in queries},
            say=self._say,
            begun=lambda name: self._deliveries[name].begun,
            stopping=lambda: stopping() or self._stopping.is_set(),
        )
        self._queries = starting.queries
        with in_turn(starting.stopping):
            starting.run()
        self._staying = threading.Thread(
            target=self._stay, args=(starting,), name="first-batches", daemon=True
        )
        self._staying.start()

    def _starter(self, spark: SparkSession, planned: PlannedQuery) -> Callable[[], StreamingQuery]:
        from millstream.pipeline.spark.job_session import PLAN_SETTINGS, STATE_SETTINGS, started

        query = planned.query
        delivery = self._deliveries[query.name]
        written = delivery.tasks.at_the_end_of(planned.rows).writeStream
        writer = written.queryName(self._title(query)).outputMode(query.output_mode)
        writer = writer.option("checkpointLocation", self.checkpoint.query(query.name)).foreachBatch(delivery)
        if self.settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.settings.trigger is not None:
            writer = writer.trigger(processingTime=self.settings.trigger)
        settings = {**delivery.tasks.spark_settings, **PLAN_SETTINGS}
        settings |= STATE_SETTINGS if query.operators else {}
        if (carry := self.settings.bounds.carries.get(query.name)) is not None:
            self.checkpoint.logs.carry_watermark(query.name, carry.batch, carry.by_ms)
        return partial(started, spark, settings, writer)

    def _title(self, query: Query) -> str:
        """The query's name in Spark, which runs only one query of a name at a time in a session."""
        title = f"{self.flow.name}: {query.name}"
        return f"{title} rebuilt" if self.settings.rebuild else title

    def _progressed(self, progress: BatchProgress) -> None:
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
        from millstream.pipeline.run.delivery.changelog import Changelogs, changelogs_of
        from millstream.pipeline.run.delivery.delivery import Delivery

        connection = self.settings.connection
        cluster = Cluster(connection, patience=connection.patience)
        group = self._groups[query.name]
        to_topics = WriteOptions.of(self.settings.options)
        transactions, changelogs = None, None
        guarantee = "rebuild" if self.settings.rebuild else self.flow.guarantee
        if guarantee == "exactly-once":
            transactions = QueryTransactions(cluster, group, timeout_s=self.settings.transaction_timeout_s)
        if guarantee != "rebuild" and (told := changelogs_of(query)):
            changelogs = Changelogs(told, views.values(), cluster, to_topics)
        return Delivery(
            query,
            views,
            guarantee=guarantee,
            ledger=Ledger(cluster, group),
            transactions=transactions,
            cluster=cluster,
            checkpoint=self.checkpoint,
            store=self._store,
            to_topics=to_topics,
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
                id_ = self.checkpoint.logs.query_id(name)
                if self._store is not None and id_ is not None:
                    try:
                        self._store.written(id_)
                    except ViewsRebuilt as rebuilt:
                        delivery.failure = rebuilt
                        return
            if minutes == _CLEAN_UP_AFTER:
                self.checkpoint.clean_up()

    def _delivered(self, query: str, batch: int) -> DeliveryReport:
        from millstream.pipeline.run.delivery.report import DeliveryReport

        return self._deliveries[query].delivered.pop(batch, None) or DeliveryReport({})

    @property
    def entries(self) -> dict[str, LedgerEntry]:
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
    def begun(self) -> bool:
        """True once Spark has reported a batch of this run."""
        return bool(self._last)

    @property
    def running(self) -> bool:
        return any(query.isActive or self._comes_back(name) for name, query in self._queries.items())

    def _comes_back(self, query: str) -> bool:
        from millstream.pipeline.spark.job_session import quiet_pyspark

        with quiet_pyspark():
            return self._starting is not None and self._starting.comes_back(query)

    def last_progress(self, patience: float = 30.0) -> dict[str, BatchProgress]:
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
        from millstream.pipeline.spark.job_session import quiet_pyspark

        with quiet_pyspark():
            return self._failed()

    def _failed(self) -> MillstreamError | None:
        from millstream.pipeline.spark.failures import condensed, line_in

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
                    f"query {name!r} did not start in {self._starting.attempts[name]} attempts: Spark waits"
                    f" 10 s for a Python process, and {busy()}. Nothing was lost. Start the job again when"
                    " the machine is less busy, or use --restart on-failure"
                )
            if error is not None:
                return TopologyError(f"query {name!r} failed: {condensed(error)}", where=line_in(str(error)))
        return None

    def tell(self, error: MillstreamError) -> None:
        """Report why the job has ended, to processes that outlive it."""
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
    def _stay(starting: QueryStarter) -> None:
        from millstream.pipeline.spark.job_session import quiet_pyspark

        with suppress(Exception), quiet_pyspark():  # the JVM is gone, which everything else notices too
            starting.stay()

    def _no_more_starts(self) -> None:
        self._stopping.set()
        if self._staying is not None:
            self._staying.join()

    def close(self) -> None:
        """Release the listener, the deliveries and the views; the session is the caller's. A second call does
        nothing."""
        if self._closed:
            return
        self._closed = True
        with self._lent:
            self._release()

    def _release(self) -> None:
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
