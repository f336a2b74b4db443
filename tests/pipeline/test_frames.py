"""Streams on Spark: what they give, held against plain Python. On tables, since the code is the same."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream import Topology
from millstream.client.text.position import TopicPartition
from millstream.core.errors import TopologyError
from millstream.pipeline.connector.source import plain_reader, with_all
from millstream.pipeline.dsl.graph import TopicSink
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.dsl.streams import Source
from millstream.pipeline.formats.decode import plain_columns
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.spark.lowering.frames import Frames
from millstream.pipeline.spark.lowering.sinks import sink_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key:string,value:binary>>"
)
SCHEMA = "card string NOT NULL, amount double, country string, paid_at timestamp"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def frames(spark: SparkSession, values: Sequence[bytes | None], *, plain: bool = False) -> Frames:
    """``plain``: with what the source of a running job reads by itself."""
    rows = [
        (b"key", bytearray(value) if value is not None else None, "payments", 0, offset, NOON, 0, None)
        for offset, value in enumerate(values)
    ]

    def read(source: SourceNode) -> DataFrame:
        if not plain:
            return spark.createDataFrame(rows, RAW)
        schema = StructType.fromDDL(f"{RAW}, {plain_columns(source)}")
        records = spark.createDataFrame(rows, RAW).toArrow().combine_chunks().to_batches()
        return spark.createDataFrame(
            pa.Table.from_batches(
                with_all(
                    batch,
                    TopicPartition("payments", 0),
                    plain_reader(schema),
                    to_arrow_schema(schema, timezone="UTC"),
                )
                for batch in records
            ),
            schema,
        )

    return Frames(read)


def source(flow: Topology, **options: Any) -> Source:
    return flow.source("payments", **{"schema": SCHEMA, "time": "paid_at", **options})


def payment(card: str, amount: float, seconds: float, country: str = "DE") -> bytes:
    paid_at = (NOON + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"card": card, "amount": amount, "country": country, "paid_at": paid_at}).encode()


@pytest.mark.parametrize("plain", [False, True], ids=["read by Spark", "read by the source"])
def test_what_does_not_parse_is_rejected_with_the_reason_and_its_place(
    spark: SparkSession, plain: bool
) -> None:
    good = payment("a", 1.5, 0)
    cases = {
        b"nope": "not JSON",
        b"": "not JSON",
        None: "no value",
        b"\xff\xfe": "not UTF-8",
        b"[1, 2]": "JSON, but not an object",
        b"null": "JSON, but not an object",
        good + b" and more": "not JSON: it continues after the object",
        good + b"\n" + good: "not JSON: it continues after the object",
        good + b"," + good: "not JSON: it continues after the object",
        good.replace(b"1.5", b'"ten"'): "field amount: ten is not double",
        good.replace(b'"card"', b'"crad"'): "field card is missing",
        b'{"card": "a"}': "field paid_at is missing",
        b'{"card": "a", "paid_at": "yesterday"}': "field paid_at: yesterday is not timestamp",
    }
    flow = Topology("t")
    payments = source(flow)
    made = frames(
        spark,
        [good, *cases, good + b"\n", good.replace(b"1.5", b"null"), good.replace(b"DE", b"} {")],
        plain=plain,
    )
    rejected = made.of(payments.rejected.node).orderBy("offset").collect()
    assert [row.reason for row in rejected] == list(cases.values())
    assert [row.offset for row in rejected] == list(range(1, len(cases) + 1))
    assert [None if row.value is None else bytes(row.value) for row in rejected] == list(cases)
    assert {(row.topic, row.partition, bytes(row.key)) for row in rejected} == {("payments", 0, b"key")}
    assert [row.amount for row in made.of(payments.node).collect()] == [1.5, 1.5, None, 1.5]


ODD = [
    '{"n": 1}', ' {"n" : 1 , "x": {"y": [1, "}"]}} ', '{"n": 1}\n', '{"n": -0}', '{"n": 1.0}', '{"n": 1e2}',
    '{"n": "1"}', '{"n": 01}', '{"n": +1}', '{"n": 9223372036854775807}', '{"n": 9223372036854775808}',
    '{"n": 1, "n": 2}', '{"n": 1, "n": null}', '{"N": 1}', '{"n": 1,}', "{'n': 1}", '{n: 1}', '{"n": 1}}',
    '{"n": 1} {"n": 2}', '{"n": null}', '{}', '{"s": 5}', '{"s": 5.10}', '{"s": true}', '{"s": {"a": 1}}',
    '{"s": ""}', '{"s": "a\\nb\\u20ac\\/\\""}', '{"s": "\\ud83d\\ude00"}', '{"s": "\\ud83d"}',
    '{"s": "\\u0000"}', '{"s": "\\x"}', '{"s": "tab\there"}', '{"s": "\u20ac\U0001f600"}', '{"s": null}',
    '{"d": 1}', '{"d": -0}', '{"d": -0.0}', '{"d": 1e400}', '{"d": 1.7976931348623157e308}', '{"d": NaN}',
    '{"d": "NaN"}', '{"d": 0.1000000000000000055511151231257827}', '{"d": 123456789012345678901234567890}',
    '{"d": 5e-324}', '{"d": 4.35, "b": true}', '{"d": .5}', '{"b": false}', '{"b": "true"}', '{"b": 1}',
    '{"i": 2147483647}', '{"i": 2147483648}', '{"i": -2147483648, "h": -32768, "y": -128}', '{"h": 32768}',
    '{"y": 128}', '{"t": "2026-01-01T00:00:00Z"}', '{"t": "2026-01-01 00:00:00.5+01:30"}',
    '{"t": "1600-02-29T23:59:59.999999-17:59"}', '{"t": "2026-01-01T00:00:00"}', '{"t": "2026-01-01"}',
    '{"t": "2026-02-30T00:00:00Z"}', '{"t": "2026-01-01T24:00:00Z"}', '{"t": "2026-01-01T23:59:60Z"}',
    '{"t": "9999-12-31T23:59:59.999999Z"}', '{"t": "2026-01-01T00:00:00.1234567Z"}', '{"t": 1700000000}',
    '{"t": "2026-01-01T00:00:00+18:00"}', '{"t": ""}', '{"t": " 2026-01-01T00:00:00Z"}', '{"t": null}',
    '{"x": [1, 2}', '{"x": tru}', '{"x": "\\q"}', '{"x": 1.}', '{"x": 1e}', '{"x": -}', '{"x": 0x1}',
]  # fmt: skip


def test_what_the_source_reads_by_itself_is_what_spark_reads(spark: SparkSession) -> None:
    """Every way to write a value that one of them may take otherwise than the other."""
    schema = "n bigint, s string, d double, b boolean, i int, h smallint, y tinyint, t timestamp"
    payments = Topology("t").source("payments", schema=schema, include=["offset"])
    values = [text.encode() for text in ODD]
    read = []
    for plain in (False, True):
        made = frames(spark, values, plain=plain)
        taken = {row.record_offset: repr(row[:-1]) for row in made.of(payments.node).collect()}
        refused = {row.offset: row.reason for row in made.of(payments.rejected.node).collect()}
        read.append({ODD[at]: taken.get(at) or refused[at] for at in range(len(ODD))})
    assert read[1] == read[0]


def test_text_binary_and_parts_of_the_record(spark: SparkSession) -> None:
    flow = Topology("t")
    text = flow.source("lines", format="text", include=["offset"], time="log")
    binary = flow.source("bytes", format="binary")
    made = frames(spark, [b"one", b"\xff", None])
    assert [(row.value, row.record_offset) for row in made.of(text.node).collect()] == [("one", 0)]
    assert [row.reason for row in made.of(text.rejected.node).collect()] == ["not UTF-8", "no value"]
    assert [bytes(row.value) for row in made.of(binary.node).collect()] == [b"one", b"\xff"]


def test_operators_steps_and_channels_give_every_row_its_way(spark: SparkSession) -> None:
    flow = Topology("t")
    payments = source(flow)

    @payments.operator
    def priced(df):  # type: ignore[no-untyped-def]
        return df.selectExpr("*", "amount * 2 AS eur")

    @priced.operator(channels=["home", "abroad"])
    def sorted_out(df):  # type: ignore[no-untyped-def]
        return {"home": df.where("country = 'DE'"), "abroad": df.where("country != 'DE'")}

    large = priced.channel("large", where="eur > 100")
    small = priced.channel("small", where="eur < 10")
    rest = priced.otherwise("rest")
    both = flow.union(large, small.select("card", "eur"), tag="way")
    made = frames(
        spark, [payment("a", 60, 0), payment("b", 1, 1), payment("c", 20, 2, "FR"), b'{"card": "d"}']
    )

    def cards(stream: Any) -> list[str]:
        return sorted(row.card for row in made.of(stream.node).collect())

    assert cards(large) == ["a"]
    assert cards(small) == ["b"]
    assert cards(rest) == ["c"]
    assert cards(sorted_out.channel("home")) == ["a", "b"]
    assert cards(sorted_out.channel("abroad")) == ["c"]
    assert sorted((row.card, row.way, row.country) for row in made.of(both.node).collect()) == [
        ("a", "large", "DE"),
        ("b", "select 1", None),
    ]


def test_windows_agree_with_plain_python(spark: SparkSession) -> None:
    rng = random.Random(3)
    events = [(rng.choice("abc"), rng.randrange(1, 100), rng.randrange(0, 600)) for _ in range(300)]
    flow = Topology("t")
    payments = source(flow)
    tumbling = payments.window(by="card", size="1 minute").agg(n="count(*)", spent="sum(amount)")
    hopping = payments.window(by="upper(card) AS who", size="60 s", every="20 s").agg(n="count(*)")
    sessions = payments.window(by="card", gap="7 seconds").agg(n="count(*)")
    made = frames(spark, [payment(card, amount, at) for card, amount, at in events])

    def seconds(time: datetime) -> int:
        return round((time.astimezone(UTC) - NOON).total_seconds())

    expected: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for card, amount, at in events:
        window = expected[card, at // 60 * 60]
        window[0] += 1
        window[1] += amount
    found = made.of(tumbling.node).collect()
    assert {(r.card, seconds(r.window_start)): [r.n, r.spent] for r in found} == expected
    assert {seconds(r.window_end) - seconds(r.window_start) for r in found} == {60}
    assert {r.time_basis for r in found} == {"event time (paid_at)"}

    hops: dict[tuple[str, int], int] = defaultdict(int)
    for card, _, at in events:
        for start in range(at // 20 * 20 - 40, at // 20 * 20 + 1, 20):
            hops[card.upper(), start] += 1
    assert {(r.who, seconds(r.window_start)): r.n for r in made.of(hopping.node).collect()} == hops

    spans: list[tuple[str, int, int, int]] = []
    for card in "abc":
        for at in sorted(at for other, _, at in events if other == card):
            if spans and spans[-1][0] == card and at <= spans[-1][2]:
                spans[-1] = (card, spans[-1][1], at + 7, spans[-1][3] + 1)
            else:
                spans.append((card, at, at + 7, 1))
    result = made.of(sessions.node).collect()
    assert sorted((r.card, seconds(r.window_start), seconds(r.window_end), r.n) for r in result) == sorted(
        spans
    )


def test_records_for_topics_carry_key_value_headers_and_time(spark: SparkSession) -> None:
    flow = Topology("t")
    payments = source(flow)
    payments.select("card", "amount", "paid_at").to_topic("whole", key="card", time="paid_at")
    payments.to_topic("parts", value=["card", "amount * 2 AS twice"])
    payments.to_topic("plain", value="upper(card)")
    payments.rejected.to_topic("bad")
    (query,) = plan(flow).queries
    given, views = sink_rows(query, frames(spark, [payment("a", 1.5, 0.25), b"oops"]))
    topics = [sink.topic for sink in query.sinks if isinstance(sink, TopicSink)]
    records = {topics[row.sink]: row for row in given.collect()}
    assert views == {}
    assert bytes(records["whole"].key) == b"a"
    assert json.loads(records["whole"].value) == {
        "card": "a",
        "amount": 1.5,
        "paid_at": "2026-01-01T12:00:00.250000Z",
    }
    assert records["whole"].timestamp.astimezone(UTC) == NOON + timedelta(seconds=0.25)
    assert json.loads(records["parts"].value) == {"card": "a", "twice": 3.0}
    assert records["parts"].key is None
    assert bytes(records["plain"].value) == b"A"
    assert bytes(records["bad"].value) == b"oops"
    assert records["whole"].headers is None
    assert json.loads(records["bad"].headers) == {
        "millstream-reason": "not JSON",
        "millstream-topic": "payments",
        "millstream-partition": "0",
        "millstream-offset": "1",
    }


def test_windows_that_share_their_state_give_what_each_alone_would(spark: SparkSession) -> None:
    rng = random.Random(5)
    events = [(rng.choice("abc"), rng.randrange(1, 100), rng.randrange(0, 600)) for _ in range(200)]
    flow = Topology("t")
    payments = source(flow)
    fast = payments.window(by="card", size="60 s").agg(n="count(*)", most="max(amount)")
    odd = payments.where("amount > 20").window(by="card", size="50 s", every="20 s").agg(n="count(*)")
    long = payments.window(by="card", size="10 minutes", every="10 s").agg(total="sum(amount)")
    both = flow.union(fast.where("n > 3"), odd, long.select("*", "total > 500 AS much"), tag="window")
    both.to_view("all_windows", key=["card", "window_start", "window"])
    both.where("n > 4").select("card", "n + 1").to_topic("some", key="card")
    (query,) = plan(flow).queries
    assert len(query.outputs) == 1
    made = frames(spark, [payment(card, amount, at) for card, amount, at in events])
    given, views = sink_rows(query, made)
    alone = made.of(both.node).collect()
    rows = [row for row in given.collect() if row.sink == 0]
    names = [name for name, _ in views[0].columns]
    together = [tuple(row[f"view_0_{at}"] for at in range(len(names))) for row in rows]
    key = str
    assert sorted(together, key=key) == sorted((tuple(row) for row in alone), key=key)
    assert len(together) > 100
    some = sorted(bytes(row.value).decode() for row in given.collect() if row.sink == 1)
    assert some == sorted(f'{{"card":"{r.card}","(n + 1)":{r.n + 1}}}' for r in alone if (r.n or 0) > 4)


def test_a_mistake_that_only_spark_can_see_is_reported_at_its_line(spark: SparkSession) -> None:
    flow = Topology("t")
    payments = source(flow)

    @payments.operator
    def missing(df):  # type: ignore[no-untyped-def]
        return df.select("nothing_like_this")

    @payments.operator
    def broken(df):  # type: ignore[no-untyped-def]
        return df.count() / 0

    @payments.operator
    def forgotten(df):  # type: ignore[no-untyped-def]
        df.select("card")

    @payments.operator
    def same(df):  # type: ignore[no-untyped-def]
        return df

    made = frames(spark, [payment("a", 1, 0)])
    for stream, says in (
        (missing, "operator 'missing' failed: A column, variable, or function parameter with name"),
        (broken, "operator 'broken' failed: ZeroDivisionError"),
        (forgotten, "is a return missing?"),
        (same.where("amuont > 5"), "`amuont` cannot be resolved"),
        (same.where("amount > > 5"), "Syntax error at or near '>'"),
    ):
        with pytest.raises(TopologyError) as caught:
            made.of(stream.node)
        assert says in str(caught.value)
        assert "test_frames.py:" in str(caught.value.where)
        assert len(str(caught.value).splitlines()) == 1
