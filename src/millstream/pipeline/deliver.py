"""What a query gives, batch by batch, to its topics and views: the one place where results leave Spark.

The steps of a batch, by guarantee. In front of all: is it in the ledger already (ledger.py)?

    exactly-once     begin a transaction | tasks send in it | the ledger, in it | commit | views
    at-least-once    tasks send | views | the ledger
    at-most-once     the ledger | tasks send | views
    rebuild          views (rebuild.py)

Where a view has a changelog, its changes are sent in front of its commit (changelog.py).

Exactly once and views. A view has a ledger of its own: its rows and the number of the batch are one database
transaction, and a batch that it has is not applied again. The log comes first, because only the log can tell
which of two runs is the right one: a run that was taken over fails to commit there, before it has touched a
view, whereas a database would take rows from either. So after a crash a batch is in neither, in the log
alone, or in both; never in the view alone. In the log alone, which is when the ledger says "done", it is
computed again from the same offsets and the same state, nothing is sent, and the view is given its rows. The
same computation moves the query's state on, which Spark expects of every batch.

What fails because a broker is away for a while, or because Spark lost a task, fails the transaction and not
the job: the batch is run again, for as long as ``OUTAGE_S``. What fails because of the topology is not tried
again: it would fail again.
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

from millstream.client.cluster import Cluster
from millstream.client.position import TopicPartition
from millstream.client.transactions import Producer
from millstream.errors import MillstreamError
from millstream.pipeline import orders
from millstream.pipeline.causes import condensed, may_pass, was_fenced
from millstream.pipeline.changelog import Changelogs
from millstream.pipeline.checkpoint import Checkpoint
from millstream.pipeline.kernel.plain import values_of
from millstream.pipeline.kernel.spark import FINISH, NOW
from millstream.pipeline.ledger import REFRESH_S, Entry, Ledger, LedgerProblem, check_owner, is_done
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.orders import Order
from millstream.pipeline.outgoing import SINK, view_column
from millstream.pipeline.plan import Query
from millstream.pipeline.relay import Relay
from millstream.pipeline.sending import ORDER, ROWS, SHUFFLED, TASK, SendInTransaction, Targets
from millstream.pipeline.sinks import TopicSink
from millstream.pipeline.transact import TakenOver, Transactions
from millstream.pipeline.views import Changes, View, ViewsRebuilt, ViewStore, not_taken

OUTAGE_S = 120.0
# How long the number of partitions of a topic is taken as known: as long as other clients do.
_PARTITIONS_KNOWN_S = 300.0
# What one Arrow batch of encoded batches may hold, so that a task's memory does not grow with its share.
_ARROW_BYTES = 32 * 1024 * 1024
_DROP = Order("drop")


class Stopped(Exception):
    """The job is being stopped; this batch is left for the next run."""


@dataclass(slots=True)
class Delivered:
    """What became of a batch: rows by sink, milliseconds by step, and how often it was begun anew."""

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
    """The ``foreachBatch`` of one query. ``views`` are by the number of their sink."""

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
        self._own = False  # whether it was this run that wrote it
        self._in_doubt = False  # an attempt at the next batch may have come through
        self._written_at = 0.0
        self._known_targets: tuple[float, Targets] | None = None
        self._relay: Relay | None = None  # where tasks and driver are on one machine
        self.delivered: dict[int, Delivered] = {}  # batches not yet reported
        self.begun = False  # whether this run has come to a batch
        self.failure: MillstreamError | None = None
        self.waiting: str | None = None  # why the batch under way has to be run again
        self.unkeyed = 0

    # ---- taking over --------------------------------------------------------------------------------

    def open(self) -> None:
        """Before the first batch: refuse a ledger that is not ours, then fence all other runs."""
        query_id = self._checkpoint.query_id(self._query.name)
        if self._guarantee in ("exactly-once", "at-most-once") and not self._new_ledger:
            # Not waiting for what an older run left open: it may be days until that runs out.
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
        """Let go of what is open. A batch that does not come to its end is left to it."""
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
        """The query's rows, with what tasks do with them: what is to be written to Spark's stream."""
        if self._transactions is not None and is_one_machine(rows.sparkSession.sparkContext):
            self._relay = Relay()
        shuffled = self._transactions is not None and self._relay is None
        return orders.delivered(rows, self._options, self._topic_names, addressed=shuffled)

    @property
    def spark_settings(self) -> dict[str, str]:
        """What the query's session should be set to."""
        if self._transactions is None:
            return {}
        return {
            # It would make a batch several jobs, and could not change anything here.
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
            raise Stopped  # to return would mean that it was delivered
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
        """After an attempt that failed: raise if there must not be another."""
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
        """For the views alone: what goes to topics was written long ago."""
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
            # Not by this run, and its first batch is long past.
            raise TakenOver(
                f"batch {this.batch} was delivered by another run of this job, which has taken over; this"
                " one ends"
            )
        self.last, self._own = entry, True
        return done

    def _check_rebuilt(self, query: str | None) -> None:
        """Raise ViewsRebuilt where that is why the ledger is another checkpoint's: it says more."""
        if self._store is None or query is None:
            return
        self._store.written(query)
        noted = self._checkpoint.rebuild()  # the ledger changes hands a moment before the views do
        if noted is not None and query in noted.get("retires", ()):
            raise ViewsRebuilt(
                f"the views in {self._store.where} were rebuilt, and go on from another checkpoint than this"
                " run's; it ends. Start the job again: it goes on where the rebuilt views are"
            )

    def _note(self, entry: Entry) -> None:
        self.last, self._own = entry, True
        self._written_at = time.monotonic()

    def refresh(self, after_s: float = REFRESH_S) -> None:
        """Write the last entry anew if that is long ago, so that it does not expire while nothing comes."""
        if self.last is None or time.monotonic() - self._written_at < after_s:
            return
        if not self._lock.acquire(blocking=False):
            return  # a batch is under way
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
                sender.close()  # with whatever is in flight: the connection is of no use to the next attempt
                raise
        tasks = min(batch.sparkSession.sparkContext.defaultParallelism, len(targets.partitions))
        _order(batch, Order("encode", targets=targets, to=tasks))
        addressed = batch.repartitionById(tasks, TASK).sortWithinPartitions(*ORDER)
        kept = [f"{name} {kind}" for name, kind in batch.dtypes if name not in SHUFFLED]
        return addressed.mapInArrow(send, ", ".join([*kept, f"{ROWS} bigint"])).toArrow()

    def _back(self, batch: DataFrame, order: Order) -> pa.Table:
        """What comes back of the batch when its tasks have done as they were told."""
        _order(batch, order)
        return batch.toArrow()

    def _move_on(self, batch: DataFrame, done: Delivered) -> None:
        """The state must move on all the same."""
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
        """The batch in the views and its changes in their changelogs; the views are committed at the end."""
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
    """A view's rows, of which the last column says whether they delete."""
    try:
        *values, deleted = map(values_of, rows.columns)
    except (UnicodeDecodeError, OverflowError, ValueError) as error:
        _find_untaken(view, rows)
        raise error
    return Changes(view, list(zip(*values, strict=True)), deleted)


def _find_untaken(view: View, rows: pa.Table) -> None:
    """Raise an error that names the first value which Python has no form of: text that is not UTF-8 (Spark
    makes it of bytes), or a time outside of the years 1 to 9999."""
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
    """Whether the tasks run beside the driver."""
    return context.master is not None and context.master.startswith("local")


def _order(batch: DataFrame, order: Order) -> None:
    """For the jobs that this thread starts from now on."""
    batch.sparkSession.sparkContext.setLocalProperty(orders.PROPERTY, order.text())
