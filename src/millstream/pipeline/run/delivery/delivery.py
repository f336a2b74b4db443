"""Delivers a query's batches with the job's guarantee: exactly-once, at-least-once or at-most-once.

This is the only place where results leave Spark, to topics and to views.

The steps of a batch, by guarantee. Except in a rebuild, the first step is to check whether the
ledger already has the batch (ledger.py).

    exactly-once     begin a transaction | tasks send in it | the ledger, in it | commit | views
    at-least-once    tasks send | views | the ledger
    at-most-once     the ledger | tasks send | views
    rebuild          views (rebuild.py)

Where a view has a changelog, the changes are sent before the view is committed (changelog.py).

Exactly-once and views. A view has a ledger of its own: its rows and the number of the batch are one
database transaction, and a batch that the view has is not applied again. The log comes first, because only
the log can tell which of two runs is the right one: a run that was taken over fails to commit there, before
it has touched a view, whereas a database would take rows from either run. So after a crash a batch is in
neither, in the log alone, or in both, but never in the view alone. If it is in the log alone (the ledger
says "done"), it is computed again from the same offsets and the same state. Nothing is sent, and the view
gets its rows. The same computation moves the query's state on, which Spark expects of every batch.

If a broker is away for a while, or Spark loses a task, the transaction fails and not the job: the batch is
run again, for as long as ``OUTAGE_S``. What fails because of the topology is not retried, because it would
fail again. With at-most-once, nothing is retried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import ProducerSession
from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.dsl.graph import TopicSink
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.planning.sink_columns import SINK
from millstream.pipeline.run.checkpoint.checkpoint import Checkpoint
from millstream.pipeline.run.delivery.batch_tasks import DROP, BatchTasks
from millstream.pipeline.run.delivery.changelog import Changelogs
from millstream.pipeline.run.delivery.instructions import Instruction
from millstream.pipeline.run.delivery.ledger import (
    REFRESH_S,
    Ledger,
    LedgerEntry,
    LedgerProblem,
    check_owner,
    is_done,
)
from millstream.pipeline.run.delivery.report import DeliveryReport
from millstream.pipeline.run.delivery.sending import ROWS
from millstream.pipeline.run.delivery.transactions import JobTakenOver, QueryTransactions
from millstream.pipeline.run.delivery.view_changes import changes_of_sink
from millstream.pipeline.spark.failures import condensed, may_pass, was_fenced
from millstream.pipeline.spark.job_session import quiet_pyspark
from millstream.pipeline.spark.kernel_operator import FINISH, NOW
from millstream.views.views import Changes, View, ViewsRebuilt, ViewStore

OUTAGE_S = 120.0


class BatchStopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


class Delivery:
    """The ``foreachBatch`` of one query. ``views`` are keyed by the number of their sink."""

    def __init__(
        self,
        query: Query,
        views: dict[int, View],
        *,
        guarantee: str,
        ledger: Ledger,
        transactions: QueryTransactions | None,
        cluster: Cluster,
        checkpoint: Checkpoint,
        store: ViewStore | None,
        to_topics: WriteOptions,
        stopping: threading.Event,
        new_ledger: bool = False,
        changelogs: Changelogs | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._query = query
        self._views = views
        self._guarantee = guarantee
        self._ledger = ledger
        self._transactions = transactions
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._store = store
        self._stopping = stopping
        self._new_ledger = new_ledger
        self._changelogs = changelogs
        self._say = say
        topics = {at: sink.topic for at, sink in enumerate(query.sinks) if isinstance(sink, TopicSink)}
        in_transactions = transactions is not None
        self.tasks = BatchTasks(topics, to_topics, cluster, in_transactions=in_transactions)
        self._lock = threading.Lock()
        self.last: LedgerEntry | None = None  # what this run knows to be in the ledger
        self._own = False  # True once this run has read or written the ledger in a batch
        self._in_doubt = False  # an attempt at the batch in progress may have succeeded
        self._written_at = 0.0
        self.delivered: dict[int, DeliveryReport] = {}  # batches not yet reported
        self.begun = False  # True once this run has come to a batch
        self.failure: MillstreamError | None = None
        self.waiting: str | None = None  # why the batch in progress has to be run again
        self.unkeyed = 0

    # ---- taking over --------------------------------------------------------------------------------

    def open(self) -> None:
        """Before the first batch: refuse another checkpoint's ledger, then fence all other runs."""
        query_id = self._checkpoint.logs.query_id(self._query.name)
        if self._guarantee in ("exactly-once", "at-most-once") and not self._new_ledger:
            # Does not wait for a transaction that an older run left open: it may take days to time out.
            entry = self._ledger.read(self._topics, stable=False)
            if entry is not None:
                try:
                    check_owner(entry, query_id, self._ledger.group)
                except LedgerProblem:
                    self._check_rebuilt(query_id)
                    raise
        if self._transactions is not None:
            self._transactions.take_over()
            if not self._new_ledger:
                self.last = self._ledger.read(self._topics)
                self._written_at = time.monotonic()

    def close(self) -> None:
        """Abort the open transaction and close connections. If a batch does not end within 5 seconds, it
        keeps its connections."""
        if self._lock.acquire(timeout=5):
            try:
                if self._transactions is not None:
                    self._transactions.abort()
                self._cluster.close()
            finally:
                self._lock.release()
        self.tasks.close()

    @property
    def _topics(self) -> set[str]:
        return {source.topic for source in self._query.sources}

    # ---- a batch ------------------------------------------------------------------------------------

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.begun = True
        with self._lock, quiet_pyspark():
            try:
                self._deliver(batch, number)
            except MillstreamError as problem:
                self.failure = problem
                raise

    def _deliver(self, batch: DataFrame, number: int) -> None:
        if self._stopping.is_set():
            raise BatchStopped  # to return would mean that the batch was delivered
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(NOW, str(self._checkpoint.logs.time(self._query.name, number)))
        finish = self._checkpoint.logs.finish(self._query.name, number)
        context.setLocalProperty(FINISH, None if finish is None else str(finish))
        query_id = str(context.getLocalProperty("sql.streaming.queryId"))
        this = LedgerEntry(query_id, number, self._checkpoint.logs.offsets(self._query.name, number))
        done = DeliveryReport(dict.fromkeys((sink.label for sink in self._query.sinks), 0))
        deliver = {
            "exactly-once": self._exactly_once,
            "at-least-once": self._at_least_once,
            "at-most-once": self._at_most_once,
            "rebuild": self._rebuild,
        }[self._guarantee]
        deadline: float | None = None
        while True:
            try:
                deliver(batch, this, done)
                break
            except Exception as error:
                deadline = deadline or time.monotonic() + OUTAGE_S
                self._failed(error, this, deadline)
                done.repeats += 1
        self._in_doubt = self._new_ledger = False
        self.waiting = None
        self.delivered[number] = done

    def _failed(self, error: Exception, this: LedgerEntry, deadline: float) -> None:
        """Handle a failed attempt: raise, unless the batch may be run again."""
        if self._transactions is not None:
            fenced = was_fenced(error)
            if fenced:
                raise self._transactions.fenced() from None
            self._transactions.abort()
        if self._guarantee == "at-most-once" or not may_pass(error):
            raise error
        if self._stopping.is_set():
            raise BatchStopped from None
        said = condensed(error)
        if time.monotonic() > deadline:
            raise MillstreamError(
                f"batch {this.batch} could not be delivered within {OUTAGE_S:g} s: {said}. It is not lost:"
                " fix the cause, then start the job again"
            ) from None
        self._in_doubt = True
        self.tasks.forget_partitions()
        self.waiting = said
        self._say(f"{self._query.name} #{this.batch}: {said}; the batch is run again")

    def _exactly_once(self, batch: DataFrame, this: LedgerEntry, done: DeliveryReport) -> None:
        transactions = self._transactions
        assert transactions is not None
        with done.step("ledger"):
            delivered = self._is_done(this)
        if delivered:
            with done.step("replay"):
                back = self.tasks.run(batch, DROP)
            self._to_views(back, this, done)
            return
        with done.step("begin"):
            producer = transactions.begin()
        with done.step("send"):
            back = self.tasks.send_in_transaction(batch, producer)
        if self._changelogs is None:
            self._commit(transactions, back, this, done)
            self._to_views(back, this, done)
        else:
            with self._with_changelogs(back, this, done, producer):
                self._commit(transactions, back, this, done)

    def _commit(
        self, transactions: QueryTransactions, back: pa.Table, this: LedgerEntry, done: DeliveryReport
    ) -> None:
        with done.step("offsets"):
            transactions.commit_offsets(self._ledger.group, this.commits())
        with done.step("commit"):
            transactions.commit()
        self._note(this)
        self._count(back, done)

    def _at_least_once(self, batch: DataFrame, this: LedgerEntry, done: DeliveryReport) -> None:
        with done.step("ledger"):
            delivered = self._is_done(this)
        if delivered:
            self._advance_state(batch, done)
            return
        with done.step("send"):
            back = self.tasks.run(batch, Instruction("send", repeatable=True))
        self._count(back, done)
        self._to_views_and_changelogs(back, this, done)
        with done.step("offsets"):
            self._ledger.write(this)
        self._note(this)

    def _at_most_once(self, batch: DataFrame, this: LedgerEntry, done: DeliveryReport) -> None:
        with done.step("ledger"):
            delivered = self._is_done(this)
        if delivered:
            self._advance_state(batch, done)
            return
        with done.step("offsets"):
            self._ledger.write(this)
        self._note(this)
        with done.step("send"):
            back = self.tasks.run(batch, Instruction("send"))
        self._count(back, done)
        self._to_views_and_changelogs(back, this, done)

    def _rebuild(self, batch: DataFrame, this: LedgerEntry, done: DeliveryReport) -> None:
        """Update only the views: the records for topics were written long ago."""
        with done.step("replay"):
            back = self.tasks.run(batch, DROP)
        self._count(back.filter(pc.is_in(back[SINK], pa.array(self._views, pa.int32()))), done)
        self._to_views(back, this, done)
        self.last = this

    # ---- the ledger ---------------------------------------------------------------------------------

    def _is_done(self, this: LedgerEntry) -> bool:
        if self._guarantee == "at-least-once":
            try:
                return self._ledger.read(self._topics) == this
            except LedgerProblem:
                return False
        try:
            entry = self._ledger.read(self._topics)
            done = is_done(entry, this, self._ledger.group)
        except LedgerProblem:
            if self._new_ledger:
                return False
            self._check_rebuilt(this.query)
            raise
        if done and self._own and not self._in_doubt:
            # Not by this run: only its first batch may have been delivered already, by the run before it.
            raise JobTakenOver(
                f"another run of this job has delivered batch {this.batch} and has taken over; this run ends"
            )
        self.last, self._own = entry, True
        return done

    def _check_rebuilt(self, query: str | None) -> None:
        """Raise ViewsRebuilt if a rebuild has changed the ledger's owner: that error says more."""
        if self._store is None or query is None:
            return
        self._store.written(query)
        noted = self._checkpoint.rebuild()  # a rebuild takes the ledger over a moment before the views
        if noted is not None and query in noted.get("retires", ()):
            raise ViewsRebuilt(
                f"the views in {self._store.where} were rebuilt, and continue from another checkpoint than"
                " this run's, so this run ends. Start the job again: it continues where the rebuilt views"
                " are"
            )

    def _note(self, entry: LedgerEntry) -> None:
        self.last, self._own = entry, True
        self._written_at = time.monotonic()

    def refresh(self, after_s: float = REFRESH_S) -> None:
        """Write the last entry again if it is old, so that it does not expire while no records come."""
        if self.last is None or time.monotonic() - self._written_at < after_s:
            return
        if not self._lock.acquire(blocking=False):
            return  # a batch is in progress
        try:
            if self._transactions is None:
                self._ledger.write(self.last)
            else:
                self._transactions.begin()
                self._transactions.commit_offsets(self._ledger.group, self.last.commits())
                self._transactions.commit()
            self._written_at = time.monotonic()
        except JobTakenOver as problem:
            self.failure = problem
        except MillstreamError as problem:
            if self._transactions is not None:
                self._transactions.abort()
            self._say(f"the offsets of group {self._ledger.group!r} were not refreshed: {problem}")
        finally:
            self._lock.release()

    def _advance_state(self, batch: DataFrame, done: DeliveryReport) -> None:
        """Run the batch and deliver nothing: the query's state must move on all the same."""
        with done.step("replay"):
            self.tasks.advance(batch)

    # ---- what came back -----------------------------------------------------------------------------

    def _count(self, back: pa.Table, done: DeliveryReport) -> None:
        for sink, rows in zip(back[SINK].to_pylist(), back[ROWS].to_pylist(), strict=True):
            done.rows[self._query.sinks[sink].label] += rows

    def _to_views(self, back: pa.Table, this: LedgerEntry, done: DeliveryReport) -> None:
        if self._store is not None and self._views:
            with done.step("views"):
                self.unkeyed += self._store.apply(this.query, this.batch, self._all_changes(back)) or 0

    def _to_views_and_changelogs(self, back: pa.Table, this: LedgerEntry, done: DeliveryReport) -> None:
        if self._changelogs is None:
            self._to_views(back, this, done)
        else:
            with self._with_changelogs(back, this, done, None):
                pass

    @contextmanager
    def _with_changelogs(
        self, back: pa.Table, this: LedgerEntry, done: DeliveryReport, producer: ProducerSession | None
    ) -> Iterator[None]:
        """Apply the batch to the views, and send the changes to their changelogs. The views are committed
        once the caller is done."""
        assert self._store is not None
        assert self._changelogs is not None
        with ExitStack() as open_until_the_end:
            with done.step("views"):
                applied = open_until_the_end.enter_context(
                    self._store.applying(
                        this.query, this.batch, self._all_changes(back), self._changelogs.topics
                    )
                )
            with done.step("changelog"):
                for topic, rows in self._changelogs.send(applied, producer).items():
                    done.rows[f"topic {topic}"] = rows
            yield
        self.unkeyed += 0 if applied is None else applied.unkeyed

    def _all_changes(self, back: pa.Table) -> list[Changes]:
        return [changes_of_sink(sink, view, back) for sink, view in self._views.items()]
