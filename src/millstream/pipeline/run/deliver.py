"""Delivers every batch of a query to its topics and views: the one place where results leave Spark.

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
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext
from pyspark.sql import DataFrame

from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import Producer
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.dsl.sinks import TopicSink
from millstream.pipeline.kernel.plain import values_of
from millstream.pipeline.kernel.spark import FINISH, NOW
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.run import task_orders as orders
from millstream.pipeline.run.changelog import Changelogs
from millstream.pipeline.run.checkpoint import Checkpoint
from millstream.pipeline.run.ledger import REFRESH_S, Entry, Ledger, LedgerProblem, check_owner, is_done
from millstream.pipeline.run.outgoing import SINK, view_column
from millstream.pipeline.run.sender_relay import Relay
from millstream.pipeline.run.sending import ORDER, ROWS, SHUFFLED, TASK, SendInTransaction, Targets
from millstream.pipeline.run.task_orders import Order
from millstream.pipeline.run.transact import TakenOver, Transactions
from millstream.pipeline.spark.causes import condensed, may_pass, was_fenced
from millstream.views.views import Changes, View, ViewsRebuilt, ViewStore, not_taken

OUTAGE_S = 120.0
# How long the partition count of a topic is cached: as long as in other clients.
_PARTITIONS_KNOWN_S = 300.0
# The most that one Arrow batch of encoded batches may hold: a task's memory must not grow with its share.
_ARROW_BYTES = 32 * 1024 * 1024
_DROP = Order("drop")


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


@dataclass(slots=True)
class Delivered:
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


class Delivery:
    """The ``foreachBatch`` of one query. ``views`` are keyed by the number of their sink."""

    def __init__(
        self,
        query: Query,
        views: dict[int, View],
        *,
        guarantee: str,
        ledger: Ledger,
        transactions: Transactions | None,
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
        self._options = to_topics
        self._stopping = stopping
        self._new_ledger = new_ledger
        self._changelogs = changelogs
        self._say = say
        self._lock = threading.Lock()
        self.last: Entry | None = None  # what this run knows to be in the ledger
        self._own = False  # True once this run has read or written the ledger in a batch
        self._in_doubt = False  # an attempt at the batch in progress may have succeeded
        self._written_at = 0.0
        self._known_targets: tuple[float, Targets] | None = None
        self._relay: Relay | None = None  # only where tasks and driver are on one machine
        self.delivered: dict[int, Delivered] = {}  # batches not yet reported
        self.begun = False  # True once this run has come to a batch
        self.failure: MillstreamError | None = None
        self.waiting: str | None = None  # why the batch in progress has to be run again
        self.unkeyed = 0

    # ---- taking over --------------------------------------------------------------------------------

    def open(self) -> None:
        """Before the first batch: refuse another checkpoint's ledger, then fence all other runs."""
        query_id = self._checkpoint.query_id(self._query.name)
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
        """Release what is open. If a batch does not end within 5 seconds, its connections are left to it."""
        if self._lock.acquire(timeout=5):
            try:
                if self._transactions is not None:
                    self._transactions.abort()
                self._cluster.close()
            finally:
                self._lock.release()
        if self._relay is not None:
            self._relay.close()

    @property
    def _topics(self) -> set[str]:
        return {source.topic for source in self._query.sources}

    # ---- a batch ------------------------------------------------------------------------------------

    def at_the_end_of(self, rows: DataFrame) -> DataFrame:
        """The rows to write to Spark's stream: the query's, with the tasks' last step attached."""
        if self._transactions is not None and is_one_machine(rows.sparkSession.sparkContext):
            self._relay = Relay()
        shuffled = self._transactions is not None and self._relay is None
        return orders.delivered(rows, self._options, self._topic_names, addressed=shuffled)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings for the query's Spark session."""
        if self._transactions is None:
            return {}
        return {
            # Adaptive execution would make several jobs of a batch, and could not change anything here.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.maxBytesPerBatch": str(_ARROW_BYTES),
        }

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.begun = True
        with self._lock:
            try:
                self._deliver(batch, number)
            except MillstreamError as problem:
                self.failure = problem
                raise

    def _deliver(self, batch: DataFrame, number: int) -> None:
        if self._stopping.is_set():
            raise Stopped  # to return would mean that the batch was delivered
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(NOW, str(self._checkpoint.time(self._query.name, number)))
        finish = self._checkpoint.finish(self._query.name, number)
        context.setLocalProperty(FINISH, None if finish is None else str(finish))
        query_id = str(context.getLocalProperty("sql.streaming.queryId"))
        this = Entry(query_id, number, self._checkpoint.offsets(self._query.name, number))
        done = Delivered(dict.fromkeys((sink.label for sink in self._query.sinks), 0))
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

    def _failed(self, error: Exception, this: Entry, deadline: float) -> None:
        """Handle a failed attempt: raise, unless the batch may be run again."""
        if self._transactions is not None:
            fenced = was_fenced(error)
            if fenced:
                raise self._transactions.fenced() from None
            self._transactions.abort()
        if self._guarantee == "at-most-once" or not may_pass(error):
            raise error
        if self._stopping.is_set():
            raise Stopped from None
        said = condensed(error)
        if time.monotonic() > deadline:
            raise MillstreamError(
                f"batch {this.batch} could not be delivered in {OUTAGE_S:g} s: {said}. It is not lost: start"
                " the job again once the cause is gone"
            ) from None
        self._in_doubt = True
        self._known_targets = None
        self.waiting = said
        self._say(f"{self._query.name} #{this.batch}: {said}; the batch is run again")

    def _exactly_once(self, batch: DataFrame, this: Entry, done: Delivered) -> None:
        transactions = self._transactions
        assert transactions is not None
        with done.step("ledger"):
            delivered = self._is_done(this)
        if delivered:
            with done.step("replay"):
                back = self._back(batch, _DROP)
            self._to_views(back, this, done)
            return
        with done.step("begin"):
            producer = transactions.begin()
        with done.step("send"):
            back = self._sent_in_transaction(batch, producer)
        if self._changelogs is None:
            self._commit(transactions, back, this, done)
            self._to_views(back, this, done)
        else:
            with self._told(back, this, done, producer):
                self._commit(transactions, back, this, done)

    def _commit(self, transactions: Transactions, back: pa.Table, this: Entry, done: Delivered) -> None:
        with done.step("offsets"):
            transactions.commit_offsets(self._ledger.group, this.commits())
        with done.step("commit"):
            transactions.commit()
        self._note(this)
        self._count(back, done)

    def _at_least_once(self, batch: DataFrame, this: Entry, done: Delivered) -> None:
        with done.step("ledger"):
            delivered = self._is_done(this)
        if delivered:
            self._move_on(batch, done)
            return
        with done.step("send"):
            back = self._back(batch, Order("send", repeatable=True))
        self._count(back, done)
        self._to_views_telling(back, this, done)
        with done.step("offsets"):
            self._ledger.write(this)
        self._note(this)

    def _at_most_once(self, batch: DataFrame, this: Entry, done: Delivered) -> None:
        with done.step("ledger"):
            delivered = self._is_done(this)
        if delivered:
            self._move_on(batch, done)
            return
        with done.step("offsets"):
            self._ledger.write(this)
        self._note(this)
        with done.step("send"):
            back = self._back(batch, Order("send"))
        self._count(back, done)
        self._to_views_telling(back, this, done)

    def _rebuild(self, batch: DataFrame, this: Entry, done: Delivered) -> None:
        """Update only the views: the records for topics were written long ago."""
        with done.step("replay"):
            back = self._back(batch, _DROP)
        self._count(back.filter(pc.is_in(back[SINK], pa.array(self._views, pa.int32()))), done)
        self._to_views(back, this, done)
        self.last = this

    # ---- the ledger ---------------------------------------------------------------------------------

    def _is_done(self, this: Entry) -> bool:
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
            raise TakenOver(
                f"batch {this.batch} was delivered by another run of this job, which has taken over; this"
                " one ends"
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
                f"the views in {self._store.where} were rebuilt, and go on from another checkpoint than this"
                " run's; it ends. Start the job again: it goes on where the rebuilt views are"
            )

    def _note(self, entry: Entry) -> None:
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
        except TakenOver as problem:
            self.failure = problem
        except MillstreamError as problem:
            if self._transactions is not None:
                self._transactions.abort()
            self._say(f"the offsets of group {self._ledger.group!r} were not refreshed: {problem}")
        finally:
            self._lock.release()

    @property
    def _topic_names(self) -> dict[int, str]:
        sinks = enumerate(self._query.sinks)
        return {number: sink.topic for number, sink in sinks if isinstance(sink, TopicSink)}

    # ---- jobs on Spark ------------------------------------------------------------------------------

    def _sent_in_transaction(self, batch: DataFrame, producer: Producer) -> pa.Table:
        targets = self._targets()
        if not targets.partitions:
            return self._back(batch, _DROP)
        send = SendInTransaction(self._options, targets, producer)
        if self._relay is not None:
            sender = send.sender(self._cluster)
            try:
                with self._relay.passing_on(sender, targets.partitions) as driver:
                    return self._back(batch, Order("encode", targets=targets, to=driver))
            except BaseException:
                sender.close()  # drops what is in flight: the next attempt can't use the connection
                raise
        tasks = min(batch.sparkSession.sparkContext.defaultParallelism, len(targets.partitions))
        _order(batch, Order("encode", targets=targets, to=tasks))
        addressed = batch.repartitionById(tasks, TASK).sortWithinPartitions(*ORDER)
        kept = [f"{name} {kind}" for name, kind in batch.dtypes if name not in SHUFFLED]
        return addressed.mapInArrow(send, ", ".join([*kept, f"{ROWS} bigint"])).toArrow()

    def _back(self, batch: DataFrame, order: Order) -> pa.Table:
        """Run the batch with the given order to its tasks. Returns the rows that come back."""
        _order(batch, order)
        return batch.toArrow()

    def _move_on(self, batch: DataFrame, done: Delivered) -> None:
        """Run the batch and deliver nothing: the query's state must move on all the same."""
        with done.step("replay"):
            _order(batch, _DROP)
            batch.write.format("noop").mode("append").save()

    def _targets(self) -> Targets:
        if self._known_targets is not None and time.monotonic() < self._known_targets[0]:
            return self._known_targets[1]
        partitions: list[TopicPartition] = []
        first: dict[int, int] = {}
        count: dict[int, int] = {}
        by_topic: dict[str, int] = {}
        for number, topic in self._topic_names.items():
            if topic not in by_topic:
                by_topic[topic] = len(partitions)
                found = self._cluster.partitions_of(topic, create=True)
                partitions += [TopicPartition(topic, partition) for partition in range(found)]
            first[number] = by_topic[topic]
            count[number] = sum(1 for place in partitions if place.topic == topic)
        targets = Targets(tuple(partitions), first, count)
        self._known_targets = time.monotonic() + _PARTITIONS_KNOWN_S, targets
        return targets

    # ---- what came back -----------------------------------------------------------------------------

    def _count(self, back: pa.Table, done: Delivered) -> None:
        for sink, rows in zip(back[SINK].to_pylist(), back[ROWS].to_pylist(), strict=True):
            done.rows[self._query.sinks[sink].label] += rows

    def _to_views(self, back: pa.Table, this: Entry, done: Delivered) -> None:
        if self._store is not None and self._views:
            with done.step("views"):
                self.unkeyed += self._store.apply(this.query, this.batch, self._all_changes(back)) or 0

    def _to_views_telling(self, back: pa.Table, this: Entry, done: Delivered) -> None:
        if self._changelogs is None:
            self._to_views(back, this, done)
        else:
            with self._told(back, this, done, None):
                pass

    @contextmanager
    def _told(
        self, back: pa.Table, this: Entry, done: Delivered, producer: Producer | None
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
        return [self._changes(back, sink, view) for sink, view in self._views.items()]

    def _changes(self, back: pa.Table, sink: int, view: View) -> Changes:
        names = [view_column(sink, at) for at in range(len(view.columns) + 1)]
        rows = back.filter(pc.equal(back[SINK], sink)).select(names)
        return changes_of(view, rows)


def changes_of(view: View, rows: pa.Table) -> Changes:
    """A view's rows as changes. The last column says whether a row deletes."""
    try:
        *values, deleted = map(values_of, rows.columns)
    except (UnicodeDecodeError, OverflowError, ValueError) as error:
        _find_untaken(view, rows)
        raise error
    return Changes(view, list(zip(*values, strict=True)), deleted)


def _find_untaken(view: View, rows: pa.Table) -> None:
    """Raise an error that names the first value that Python can't represent: text that is not UTF-8 (Spark
    makes it from bytes), or a time outside of the years 1 to 9999."""
    for at in range(rows.num_rows):
        row: list[Any] = []
        wrong: tuple[str, str] | None = None
        for (name, _), column in zip(view.columns, rows.columns, strict=False):
            try:
                row += values_of(column.slice(at, 1))
            except (UnicodeDecodeError, OverflowError, ValueError) as error:
                row.append("?")
                wrong = wrong or (name, str(error))
        if wrong is not None:
            raise not_taken(view, row, *wrong, "its database")


def is_one_machine(context: SparkContext) -> bool:
    """True if the tasks run on the driver's machine."""
    return context.master is not None and context.master.startswith("local")


def _order(batch: DataFrame, order: Order) -> None:
    """Set the order for the jobs that this thread starts from now on."""
    batch.sparkSession.sparkContext.setLocalProperty(orders.PROPERTY, order.text())
