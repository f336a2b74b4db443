"""The protocol that rebuilds views next to the ones being read, and then swaps them in.

A rebuild runs the whole job a second time. Its queries start at the beginning of their sources, perhaps with
other code, under a separate checkpoint and into separate tables (``millstream_next_V``). Their output to
topics is left out, because the running job wrote it long ago. When they have reached the running job's
position, their rows replace those of the views, and their checkpoint replaces the job's checkpoint. From then
on there is one job again: the new one.

Rules

1. The rebuilt queries never read further than the running job has come: each run ends at that job's ledger,
   the committed offsets of its groups. So no record is left out of the topics' results, and with exactly-once
   none is there twice. The old job has written everything before that position, and the new one will write
   everything after it.
2. Nothing that the running job needs is touched before the decision. If the rebuild dies, the job has not
   noticed anything, except that it may have waited ``HOLD_S`` once.
3. One write decides, and the next start of the job repeats what follows it (``settling.settle``). With
   exactly-once, it is the commit of the ledger in the log, by a producer that has taken over the
   transactional id. Otherwise it is the commit of the views' database that retires the running job's queries.

Step by step

    catch up  R = where the ledger is now; run up to R; again until a run is short
    fence     exactly-once: take over the transactional ids. The running job can't commit any more, and ends
              by itself. Wait until its last batch is in its views
    hold      its queries wait before they write to their views, and it can't be started, for HOLD_S at most
    catch up  for the last time, up to where the ledger is and stays
    note      write the batches that were reached to rebuild.json
    swap      in one transaction of the database: replace the rows, retire the old queries. Inside it, before
              its commit: send what changed to changelogs; with exactly-once, commit that and the ledger
    ledger    the other guarantees: write it
    switch    rebuild.json becomes topology.json; the old checkpoint is removed some minutes later

What happens if the rebuild dies

    before the decision          the job continues as it was (after ``hold``: once the hold has expired; a
                                 fenced job has ended, and is started again). The next rebuild starts over
    after it, before the swap    exactly-once only: the ledger shows who owns it. ``settle`` swaps
    after the swap               the old queries are retired. ``settle`` writes the ledger and switches

With at-most-once, the running job has to be stopped first to be safe. It writes its ledger before its
results, so one more batch may reach the topics between the rebuild's last look at the ledger and the swap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.client.protocol.cluster import EARLIEST, LATEST, Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, MillstreamError
from millstream.pipeline.connector.offsets import Offsets, parse_positions, resolve, to_json
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.planning.plan import Plan, plan
from millstream.pipeline.run.bounded.planner import RunBounds
from millstream.pipeline.run.checkpoint.checkpoint import REBUILD, Checkpoint
from millstream.pipeline.run.delivery.ledger import Ledger, LedgerEntry
from millstream.pipeline.run.delivery.transactions import JobTakenOver, QueryTransactions
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.rebuild.settling import finish, settle
from millstream.views.opening import open_store
from millstream.views.views import AppliedBatch, View, ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.pipeline.run.settings import JobSettings

HOLD_S = 120.0
_SHORT_S = 10.0  # after a run this short, only the last one follows
_BEHIND_S = 30.0  # how long the running job may take to write its last committed batch to its views
_ATTEMPTS = 5


class RebuildStopped(Exception):
    """The user stopped the rebuild before its end."""


class Rebuild:
    """One rebuild of a job's views. ``settings`` are the job's own."""

    def __init__(
        self,
        flow: Topology,
        settings: JobSettings,
        *,
        start: str = "earliest",
        say: Callable[[str], None] = lambda text: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.flow = flow
        self.settings = settings
        self.plan: Plan = plan(flow)
        self._start = start
        self._say = say
        self._stopping = stopping
        self._old = Checkpoint(settings.checkpoint)
        self._new = self._old.of_rebuild()
        self._cluster = Cluster(settings.connection, patience=settings.connection.patience)
        self._reached: dict[str, LedgerEntry] = {}
        self._came_to: dict[str, Offsets] | None = None  # where the last run ended
        self._views: list[View] = []
        self._ends: Offsets = {}  # of topics that are new to the job, as of the first run
        if not self.plan.views:
            raise ConfigError(f"{flow.name} writes no views, so there is nothing to rebuild")

    def run(self, spark: SparkSession, views: str | Path) -> None:
        """Run the whole rebuild. Raises RebuildStopped, with nothing changed."""
        self._old.files.attach(spark)
        settle(self._old, views, self.settings.connection)
        kept = self._old.kept()
        if kept is None:
            raise ConfigError(
                f"there is no checkpoint in {self._old.location}: this job has not run yet, and its first"
                " run builds the views"
            )
        store = open_store(views)
        try:
            self._begin_anew(kept, store)
            settings = replace(
                self.settings, rebuild=True, available_now=True, start=self._start, new_ledger=False
            )
            while True:
                took = self._catch_up(settings, spark, kept)
                if took < _SHORT_S:
                    break
            for _ in range(_ATTEMPTS):
                try:
                    self._take_over(settings, spark, kept, store)
                    return
                except JobTakenOver:
                    self._say("the job was started again meanwhile; trying again")
            raise MillstreamError(
                "the job kept restarting while its views were about to be swapped; stop the job, then"
                " rebuild the views"
            )
        finally:
            store.close()
            self._cluster.close()

    def _begin_anew(self, kept: dict[str, Any], store: ViewStore) -> None:
        """Remove what an earlier rebuild left, and note a new, empty checkpoint."""
        self._old.clean_up()
        left = self._new.kept()
        if left is not None:
            self._new.files.remove(left["directory"])
            self._new.files.remove(REBUILD)
        store.forget_rebuilt(self.plan.views)
        number = int(str(kept.get("directory", "queries")).partition(".")[2] or 1)
        directory = f"queries.{number + 1}"
        self._new.files.remove(directory)
        # A query that keeps its name keeps its group, which claim() takes from here.
        self._new.note(
            {"job": self.flow.name, "queries": {}, "groups": kept["groups"], "directory": directory}
        )

    # ---- catching up ---------------------------------------------------------------------------------

    def _catch_up(self, settings: JobSettings, spark: SparkSession, kept: dict[str, Any]) -> float:
        """Run up to the job's current position; returns how many seconds that took."""
        until = self._until(kept)
        if until == self._came_to:
            return 0.0
        began = time.monotonic()
        job = Job(self.flow, replace(settings, bounds=RunBounds(until)))
        try:
            job.prepare()
            job.start(spark)
            self._views = job.own_views
            while job.running:
                time.sleep(0.05)
                if self._stopping():
                    job.stop()
                    raise RebuildStopped
            error = job.failed()
            if error is not None:
                raise error
            self._reached |= job.entries
            self._came_to = until
        finally:
            job.close()
        return time.monotonic() - began

    def _until(self, kept: dict[str, Any]) -> dict[str, Offsets]:
        """The running job's position, for every query of the rebuild."""
        committed = {name: self._cluster.commits(group) for name, group in kept["groups"].items()}
        sources = {name: set(shape["sources"]) for name, shape in kept["queries"].items()}
        same = set(sources) == {query.name for query in self.plan.queries}
        found: dict[str, Offsets] = {}
        for query in self.plan.queries:
            topics = {source.topic for source in query.sources}
            counts = self._cluster.topics(topics)
            places = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
            earliest = self._cluster.ends(places, EARLIEST)
            begin = self._begin(places)
            found[query.name] = {}
            for place in places:
                readers = [name for name, read in sources.items() if place.topic in read]
                # If old and new queries differ, stop at the one furthest behind: none of its results may be
                # lost.
                if query.name in readers and same:
                    readers = [query.name]
                if readers:
                    offsets = [committed[name][place].offset for name in readers if place in committed[name]]
                    offset = min(offsets) if len(offsets) == len(readers) else earliest[place]
                else:
                    if place not in self._ends:
                        self._ends |= self._cluster.ends([place], LATEST, read_committed=True)
                    offset = self._ends[place]
                if offset < begin[place]:
                    raise MillstreamError(
                        f"the job is at offset {offset} of {place}, and the rebuild would begin at"
                        f" {begin[place]}: the records in between would be in no result. Let the job catch"
                        " up first"
                    )
                found[query.name][place] = offset
        return found

    def _begin(self, places: list[TopicPartition]) -> Offsets:
        """Where the first run begins. Every later run continues from the one before."""
        found = resolve(
            self._cluster,
            places,
            parse_positions(self._start, "--from", time.time_ns() // 1_000_000),
            "--from",
            group=None,
            read_committed=True,
            strict=False,
        )
        return found if self._came_to is None else dict.fromkeys(places, 0)

    # ---- taking over --------------------------------------------------------------------------------

    def _take_over(
        self, settings: JobSettings, spark: SparkSession, kept: dict[str, Any], store: ViewStore
    ) -> None:
        ids = {name: self._old.logs.query_id(name) for name in kept["groups"]}
        old = {name: id_ for name, id_ in ids.items() if id_ is not None}
        new_groups = {query.name: self._group(query.name, kept) for query in self.plan.queries}
        transactions: dict[str, QueryTransactions] = {}
        if self.flow.guarantee == "exactly-once":
            for group in dict.fromkeys((*kept["groups"].values(), *new_groups.values())):
                transactions[group] = QueryTransactions(
                    self._cluster, group, timeout_s=self.settings.transaction_timeout_s
                )
                transactions[group].take_over()
            self._wait_for_views(kept, old, store)
        try:
            while True:
                store.hold(old.values(), HOLD_S)
                if self._until(kept) == self._came_to:
                    break
                self._catch_up(settings, spark, kept)
            self._decide(new_groups, transactions, old, store)
        except BaseException:
            with suppress(MillstreamError):  # the hold expires by itself
                store.hold(old.values(), 0)
            raise

    def _group(self, query: str, kept: dict[str, Any]) -> str:
        found = next(one for one in self.plan.queries if one.name == query)
        return str(kept["groups"].get(query) or self.plan.group(found))

    def _wait_for_views(self, kept: dict[str, Any], old: Mapping[str, str], store: ViewStore) -> None:
        """Wait until the last batch that the running job has committed is in its views. The swap tells
        followers what it changes, compared with the views that they have followed so far."""
        deadline = time.monotonic() + _BEHIND_S
        for name, id_ in old.items():
            topics = kept["queries"][name]["sources"]
            entry = Ledger(self._cluster, kept["groups"][name]).read(topics)
            # A query that has written no batch there writes no views.
            while entry is not None and (written := store.written(id_)) is not None and written < entry.batch:
                if time.monotonic() > deadline:
                    raise MillstreamError(
                        f"the job died when batch {entry.batch} of {name!r} was in the log and not yet in"
                        " its views: start the job once, so that it finishes the batch, then rebuild"
                    )
                time.sleep(0.1)

    def _decide(
        self,
        groups: Mapping[str, str],
        transactions: Mapping[str, QueryTransactions],
        old: Mapping[str, str],
        store: ViewStore,
    ) -> None:
        noted = self._new.kept()
        assert noted is not None
        for name, group in groups.items():
            if name not in self._reached and self._cluster.commits(group):
                raise MillstreamError(
                    f"the topics of query {name!r} are empty, so there is nothing to rebuild its views from"
                )
        noted |= {
            "guarantee": self.flow.guarantee,
            "views": self.plan.views,
            "retires": sorted(old.values()),
            "entries": {
                name: {"query": entry.query, "batch": entry.batch, "offsets": to_json(entry.offsets)}
                for name, entry in self._reached.items()
            },
        }
        self._new.note(noted)
        with store.swapping(self.plan.views, sorted(old.values()), self._changelogs()) as applied:
            if transactions:
                self._commit(groups, transactions, applied)
            else:
                self._tell(applied, None)
        finish(self._old, self._new, noted, self._cluster)

    def _commit(
        self,
        groups: Mapping[str, str],
        transactions: Mapping[str, QueryTransactions],
        applied: AppliedBatch | None,
    ) -> None:
        """Commit the ledgers for the rebuilt queries together with the changelogs' records, in one
        transaction per query."""
        with ExitStack() as undo:
            for name, entry in self._reached.items():
                group = groups[name]
                producer = transactions[group].begin()
                undo.callback(transactions[group].abort)
                self._tell(applied, producer, only=name)
                transactions[group].commit_offsets(group, entry.commits())
            undo.pop_all()
        for name in self._reached:
            transactions[groups[name]].commit()

    def _changelogs(self) -> dict[str, str]:
        from millstream.pipeline.run.delivery.changelog import changelogs_of

        return {view: topic for query in self.plan.queries for view, topic in changelogs_of(query).items()}

    def _tell(self, applied: AppliedBatch | None, producer: Any, only: str | None = None) -> None:
        from millstream.pipeline.connector.options import WriteOptions
        from millstream.pipeline.run.delivery.changelog import Changelogs, changelogs_of

        options = WriteOptions.of(self.settings.options)
        for query in self.plan.queries:
            topics = changelogs_of(query)
            if applied is not None and topics and only in (None, query.name):
                own = AppliedBatch(
                    columns=applied.columns, changed={v: c for v, c in applied.changed.items() if v in topics}
                )
                Changelogs(topics, self._views, self._cluster, options).send(own, producer)
