"""The test driver: runs a pipeline in a test, fed by hand, on a clock that the test controls."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import tempfile
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from millstream.core.errors import MillstreamError
from millstream.core.units import DurationError, did_you_mean, duration_ms
from millstream.pipeline.dsl.graph import TopicSink, ViewSink
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.kernel.channels import AHEAD, LATE
from millstream.pipeline.kernel.clock import NEVER, BatchTime
from millstream.pipeline.kernel.ending import EndOfInput
from millstream.pipeline.run.delivery.changelog import records_of
from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Moment
from millstream.pipeline.sql.casts import UTC, from_micros, micros, timestamp_of
from millstream.pipeline.sql.compile import python_value
from millstream.testing.engine import Engine, OnSpark, OwnSql
from millstream.testing.kernels import BatchClock
from millstream.testing.records import Record, to_bytes
from millstream.testing.running import BatchOutput, FlowRunner
from millstream.views.opening import open_reader, open_store

BEGINNING = dt.datetime(2026, 1, 1, tzinfo=UTC)  # the time in a test that does not set one
_MOST_ROUNDS = 200  # of a record through a flow that reads what it writes
_LEAST_STEP = 100_000  # microseconds between two batches that only advance time, as in a job


class Driver:
    """Runs a flow in the test's own process.

    ``flow`` is a Topology, or a file that declares one (``name`` chooses among several). ``now`` is the
    time on the driver's clock, by default the time of the first event. The clock moves only with
    ``advance``. ``engine="spark"`` evaluates SQL and DataFrame functions on a local Spark session instead
    of the driver's own SQL.
    """

    def __init__(
        self,
        flow: Topology | str | Path,
        *,
        name: str | None = None,
        now: str | int | dt.datetime | None = None,
        engine: str = "python",
    ) -> None:
        self._now = None if now is None else micros(_time(now))
        made = _engine(engine)
        if not isinstance(flow, Topology):
            with made.at_work():
                flow = load_topology(flow, name)
        for source in flow.sources:
            if source.value_schema is not None:
                source.value_schema = dataclasses.replace(source.value_schema, own_ids=True)
        self._running = FlowRunner(flow, made)
        self._flow = flow
        self._home = tempfile.TemporaryDirectory(prefix="millstream-driver-")
        self._file = Path(self._home.name) / "views.db"
        self._store = open_store(self._file)
        for view in self._running.views.values():
            self._store.prepare(view)
        self._batches = 0
        self._offsets: dict[tuple[str, int], int] = {}
        self._records: dict[str, list[Record]] = {topic: [] for sink in flow.sinks for topic in sink.topics}
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._finished = False

    # ---- putting in ---------------------------------------------------------------------------------

    def feed(
        self,
        topic: str,
        rows: object,
        *,
        key: str | bytes | None = None,
        partition: int = 0,
        timestamp: str | int | dt.datetime | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> None:
        """Append records to a topic that the flow reads, and let the flow process them.

        A row is a dict or a dataclass (sent as JSON, or encoded with the source's schema), text, bytes, or
        None. It may also be a Record, which brings its own key, headers, timestamp and partition. ``rows``
        is one row or a list of them. ``timestamp`` is the record's own (a number is milliseconds since
        1970, as in the log); by default it is the time on the driver's clock.
        """
        if self._finished:
            raise MillstreamError("finish() has ended the input; create another Driver")
        topic = self._read_topic(topic)
        given = rows if isinstance(rows, list | tuple) else [rows]
        told = None if timestamp is None else _time(timestamp)
        key_bytes, header_bytes = to_bytes(key), {n: to_bytes(v) or b"" for n, v in (headers or {}).items()}
        records = [
            dataclasses.replace(one, timestamp=None if one.timestamp is None else _time(one.timestamp))
            if isinstance(one, Record)
            else Record(self._bytes(topic, one), key_bytes, header_bytes, told, partition)
            for one in given
        ]
        self._begin(topic, records)
        self._run({topic: self._appended(topic, records)})

    def _bytes(self, topic: str, row: object) -> bytes | None:
        value_schema = next((one.value_schema for one in self._flow.sources if one.topic == topic), None)
        if value_schema is None or row is None or isinstance(row, bytes):
            return to_bytes(row)
        from millstream.pipeline.formats.value_schemas import own_value

        if value_schema.format != "avro" or isinstance(row, str):
            return own_value(value_schema, json.loads(to_bytes(row) or b""))
        is_dataclass = dataclasses.is_dataclass(row) and not isinstance(row, type)
        return own_value(value_schema, dataclasses.asdict(cast(Any, row)) if is_dataclass else row)

    def _begin(self, topic: str, records: list[Record]) -> None:
        """Start the clock with the first event."""
        if self._now is not None:
            return
        times = [record.timestamp for record in records if record.timestamp is not None]
        for source in self._flow.sources:
            if source.topic == topic and source.time is not None and source.time.kind == "event":
                times += self._running.times(source, records)
        self._now = micros(min(times, default=BEGINNING))

    def _appended(self, topic: str, records: Iterable[Record]) -> list[Record]:
        found = []
        for record in records:
            place = topic, record.partition
            self._offsets[place] = offset = self._offsets.get(place, -1) + 1
            at = record.timestamp or self.now
            found.append(Record(record.value, record.key, record.headers, at, record.partition, offset))
        return found

    # ---- time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> dt.datetime:
        """The time on the driver's clock."""
        return BEGINNING if self._now is None else from_micros(self._now)

    def advance(self, duration: str) -> None:
        """Let time pass on the clock: timers fire and quiet sources become idle. Event time advances only
        as a consequence."""
        try:
            target = micros(self.now) + 1000 * duration_ms(duration)
        except DurationError as error:
            raise MillstreamError(str(error)) from None
        self._now = micros(self.now)
        while (due := self._next_look()) is not None and due < target:
            self._now = max(due, self._now + _LEAST_STEP)
            if self._now >= target:
                break
            self._run({})
        self._now = target
        self._run({})

    def _next_look(self) -> int | None:
        """The next time on the clock at which an operator wants a batch; None if there is none."""
        times = []
        for bucket in self._running.states:
            status = bucket.status()
            times += [] if status.timer is None else [status.timer]
            if status.waits_for is not None and status.may_move is not None:
                times.append(status.may_move)
        return min(times, default=None)

    def finish(self) -> None:
        """End the input: event time advances until nothing waits for it any more."""
        self._finished = True
        self._now = micros(self.now)
        for operators, is_circle in self._running.in_order():
            ending = EndOfInput(strides=not is_circle)
            while True:
                due = [bucket.status().waits_for for bucket in self._running.states.of(operators)]
                reached = ending.next(min((time for time in due if time is not None), default=None))
                if reached is None:
                    break
                self._run({}, BatchClock(BatchTime(micros(self.now), reached), operators))

    # ---- batches ------------------------------------------------------------------------------------

    def _run(self, records: Mapping[str, list[Record]], time: BatchClock | None = None) -> None:
        """Run a batch, and the batches that follow from it because the flow reads what it writes."""
        reads = {source.topic for source in self._flow.sources}
        for _ in range(_MOST_ROUNDS):
            given = self._running.batch(records, time or BatchClock(BatchTime(micros(self.now))))
            self._to_views(given)
            self._keep(given)
            back: dict[str, list[Record]] = {}
            for topic, record in given.records:
                if topic in reads:
                    back.setdefault(topic, []).append(record)
            if not back:
                return
            records = {topic: self._appended(topic, sent) for topic, sent in back.items()}
        raise MillstreamError(
            f"the flow keeps reading its own results: {', '.join(records)} came back {_MOST_ROUNDS} times"
        )

    def _to_views(self, given: BatchOutput) -> None:
        """Apply the changes to the views, and write them to the changelogs of views that have one."""
        self._batches += 1
        if not given.changes:
            return
        topics = {sink.name: sink.changelog for sink in self._flow.sinks if isinstance(sink, ViewSink)}
        told = {name: topic for name, topic in topics.items() if topic is not None}
        with self._store.applying("driver", self._batches, given.changes, told) as applied:
            assert applied is not None
            for view in applied.changed:
                for key, value in records_of(applied, self._running.views[view]):
                    given.records.append((told[view], Record(value, key, timestamp=self.now)))

    def _keep(self, given: BatchOutput) -> None:
        for topic, record in given.records:
            self._records[topic].append(record)
        for name, tables in given.rows.items():
            kept = self._rows.setdefault(name, [])
            for table in tables:
                kinds = {field.name: types.from_arrow(field.type) for field in table.schema}
                kept += [
                    {column: python_value(value, kinds[column]) for column, value in row.items()}
                    for row in table.to_pylist()
                ]

    # ---- taking out ---------------------------------------------------------------------------------

    def topic(self, name: str) -> list[Any]:
        """The values of all records that the flow has written to a topic: JSON as Python values, other values
        as text, or as bytes if they are not UTF-8."""
        sinks = [one for one in self._flow.sinks if isinstance(one, TopicSink) and one.topic == name]
        as_json = all(one.is_json for one in sinks)
        return [_decoded(record.value, as_json) for record in self.records(name)]

    def records(self, topic: str) -> list[Record]:
        """The records themselves, with key, value, headers and timestamp as they would be in the log."""
        return list(self._records[_known(topic, self._records, "the flow writes no topic")])

    def stream(self, name: str) -> list[dict[str, Any]]:
        """All rows that a stream or a channel has emitted, by its name. Rows that did not parse, came too
        late or were too far ahead are available even if the flow does not ask for them, as
        ``payments.rejected`` or ``totals.late``."""
        named = [stream.name for stream in self._flow.streams if stream.named]
        named += [f"{source.name}.rejected" for source in self._flow.sources]
        named += [f"{one}.{word}" for one in self._running.states.named() for word in (LATE, AHEAD)]
        return list(self._rows.get(_known(name, dict.fromkeys(named), "there is no stream"), ()))

    def view(self, name: str) -> dict[Any, dict[str, Any]]:
        """A view's rows by key. A key of several columns, an array or a struct becomes a tuple."""
        views = self._running.views
        view = views[_known(name, views, "there is no view")]
        reader = open_reader(self._file)
        try:
            columns, rows = reader.all(view.name)
        finally:
            reader.close()
        kinds = dict(view.columns)
        found: dict[Any, dict[str, Any]] = {}
        for row in rows:
            values = {c: _from_sqlite(value, kinds[c]) for c, value in zip(columns, row, strict=True)}
            key = tuple(_hashable(values[column]) for column in view.key)
            found[key[0] if len(key) == 1 else key] = values
        return found

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Any SELECT over the views, as ``millstream view query`` runs it (SQLite's SQL)."""
        reader = open_reader(self._file)
        try:
            columns, rows = reader.query(query)
        finally:
            reader.close()
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def watermark(self, stream: str) -> dt.datetime | None:
        """The watermark of a stateful stream; None if it has none yet."""
        found = self._running.states.named()
        reached = found[_known(stream, found, "no stateful operator has run as")].clock.watermark
        return None if reached == NEVER else from_micros(reached)

    # ---- the end ------------------------------------------------------------------------------------

    def close(self) -> None:
        self._store.close()
        self._home.cleanup()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_topic(self, name: str) -> str:
        """A topic that the flow reads, found by its own name or by its source's name."""
        by_name = {source.name: source.topic for source in self._flow.sources}
        topics = dict.fromkeys([*by_name.values(), *by_name])
        found = _known(name, topics, "the flow reads no topic")
        return by_name.get(found, found)


def _engine(name: str) -> Engine:
    moment = Moment(BEGINNING)
    if name == "python":
        return OwnSql(moment)
    if name == "spark":
        from pyspark.sql import SparkSession

        from millstream.pipeline.spark.session import spark_session

        return OnSpark(moment, SparkSession.getActiveSession() or spark_session("millstream-driver"))
    raise MillstreamError(f"engine={name!r} is not 'python' or 'spark'")


def _known(name: str, there: Iterable[str], problem: str) -> str:
    listed = list(there)
    if name in listed:
        return name
    hint = did_you_mean(name, listed) or f"there are: {', '.join(listed) or 'none'}"
    raise MillstreamError(f"{problem} {name!r}; {hint}")


def _time(given: str | int | dt.datetime) -> dt.datetime:
    if isinstance(given, int):
        return from_micros(1000 * given)
    if isinstance(given, str):
        found = timestamp_of(given)
        if found is None:
            raise MillstreamError(f"{given!r} is not a time; write it as 2026-01-31T12:00:00Z")
        at, zone = found
        return at.replace(tzinfo=zone or UTC)
    if not isinstance(given, dt.datetime):
        raise MillstreamError(f"{given!r} is not a time; give a datetime, text, or milliseconds since 1970")
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


def _decoded(value: bytes | None, as_json: bool) -> Any:
    if value is None:
        return None
    if as_json:
        return json.loads(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _from_sqlite(value: Any, kind: str) -> Any:
    """A view's value as it was in the stream."""
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    if kind in ("timestamp", "timestamp_ntz"):
        return dt.datetime.fromisoformat(value)
    if kind in ("float", "double"):
        return float(value)  # NaN is stored as text
    if kind == "date":
        return dt.date.fromisoformat(value)
    if kind.startswith("decimal"):
        return Decimal(str(value))
    return json.loads(value) if kind.startswith(("array", "map", "struct")) else value
