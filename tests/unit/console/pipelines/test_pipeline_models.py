"""What pages of pipelines show, from statuses made by hand; no broker, no HTTP."""

from __future__ import annotations

from dataclasses import asdict, replace
from xml.etree import ElementTree

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millstream.console.groups.group import group_detail
from millstream.console.groups.listing import GroupQuery, group_list
from millstream.console.observing.history import History
from millstream.console.observing.job_topic import LastReport, read_status
from millstream.console.observing.snapshot import GroupPartition, GroupState, Snapshot
from millstream.console.overview.attention import needs_attention
from millstream.console.pipelines.listing import owner_of, pipeline_list, shown_state
from millstream.console.pipelines.picture import picture
from millstream.console.pipelines.pipeline import chosen_node, pipeline, timelines
from millstream.jobs.report import BatchReport, Edge, GraphNode, JobError, JobStatus, QueryStatus, encoded

NOW = 1_700_000_000_000


def status(name: str = "fraud", **more: object) -> JobStatus:
    told = JobStatus(
        version=1,
        job=name,
        run="r",
        host="h1",
        pid=42,
        started_ms=NOW - 60_000,
        at_ms=NOW,
        state="running",
        since_ms=NOW - 50_000,
        guarantee="exactly-once",
        queries=[
            QueryStatus("payments", name, ["payments"], ["alerts"], 7, 8, 800, 5, 12.5, 30, NOW - 9000, 450)
        ],
        nodes=[
            GraphNode("t0", "topic", "payments", ["topic, json"], ["payments"], lag=30, rejected=2),
            GraphNode(
                "s1",
                "where",
                "burst <1>",
                ["window 1 minute", "where n > 3"],
                ["window 1", "burst"],
                entries=5,
                bytes=900,
                watermark_ms=NOW - 16_400,
            ),
            GraphNode("t2", "topic", "alerts"),
        ],
        edges=[Edge("t0", "s1", 798, 12.4), Edge("s1", "t2", None, None)],
    )
    return replace(told, **more)  # type: ignore[arg-type]


def snapshot(*jobs: JobStatus, heard_ms: int = NOW) -> Snapshot:
    heard = {job.job: LastReport(job, heard_ms) for job in jobs}
    return Snapshot(NOW, "b:1", "id", 0, (), {}, jobs=heard)


# Reading ---------------------------------------------------------------------------------------------


def test_what_a_job_writes_is_what_a_console_reads() -> None:
    assert read_status(encoded(status())) == status()


def test_fields_of_a_newer_version_are_passed_over_and_missing_ones_have_their_defaults() -> None:
    newer = {**asdict(status()), "version": 2, "mood": "good"}
    assert read_status(msgspec.json.encode(newer)) == status(version=2)
    known = {key: newer[key] for key in ("version", "job", "run", "host", "pid", "started_ms", "at_ms")}
    older = read_status(msgspec.json.encode({**known, "state": "running", "since_ms": 1, "guarantee": "x"}))
    assert older is not None
    assert (older.nodes, older.heartbeat_ms) == ([], 5000)


@given(
    st.one_of(st.binary(), st.text().map(str.encode), st.sampled_from([b"{}", b"null", b'{"version": "x"}']))
)
def test_what_is_no_status_is_none(value: bytes) -> None:
    assert read_status(value) is None


# The list --------------------------------------------------------------------------------------------


def test_a_job_that_is_not_heard_from_is_silent_unless_it_has_ended() -> None:
    running, stopped = status(), status(state="stopped")
    assert shown_state(LastReport(running, NOW - 19_000), NOW) == "running"
    assert shown_state(LastReport(running, NOW - 21_000), NOW) == "silent"
    assert shown_state(LastReport(stopped, NOW - 10**9), NOW) == "stopped"
    patient = status(heartbeat_ms=60_000)
    assert shown_state(LastReport(patient, NOW - 200_000), NOW) == "running", "by the job's own heartbeat"


def test_what_needs_somebody_comes_first() -> None:
    jobs = [status("b"), status("a"), status("z", state="failed", reason="no"), status("c", state="stopped")]
    listed = pipeline_list(snapshot(*jobs))
    assert [row.name for row in listed.pipelines] == ["z", "a", "b", "c"]
    assert [row.per_second for row in listed.pipelines] == [0.0, 12.5, 12.5, 0.0], (
        "what has ended reads nothing"
    )
    assert [row.name for row in pipeline_list(snapshot(*jobs), "Z").pipelines] == ["z"]
    assert pipeline(snapshot(*jobs), "nobody") is None


def test_several_queries_add_up_and_the_slowest_tells_the_time() -> None:
    query = status().queries[0]
    two = [query, replace(query, name="q2", lag=None, watermark_ms=NOW - 60_000, batch_ms=900)]
    (row,) = pipeline_list(snapshot(status(queries=two))).pipelines
    assert (row.per_second, row.lag, row.watermark_ms, row.batch_ms) == (25.0, 30, NOW - 60_000, 900)


def test_lag_is_that_of_the_jobs_group_now_and_not_what_the_job_told_last() -> None:
    parts = [
        GroupPartition("payments", number, 10, 0, 10 + lag, lag, 0, None, None, 0.0, None, None, "")
        for number, lag in enumerate((8000, 617))
    ]
    group = GroupState("fraud", "Empty", "classic", ("payments",), 8617, 0, 0.0, partitions=tuple(parts))
    seen = replace(snapshot(status()), groups={"fraud": group})
    shown = pipeline(seen, "fraud")
    assert shown is not None
    assert shown.summary.lag == shown.status.queries[0].lag == shown.status.nodes[0].lag == group.lag
    (listed,) = pipeline_list(seen).pipelines
    assert listed.lag == group.lag


def test_a_group_that_a_job_owns_says_so_where_the_broker_calls_it_empty() -> None:
    group = GroupState("fraud", "Empty", "classic", ("payments",), 0, 0, 0.0)
    seen = replace(snapshot(status()), groups={"fraud": group}, detailed=True)
    (row,) = group_list(seen, History(), GroupQuery()).groups
    assert (row.state, row.pipeline, row.pipeline_state) == ("Empty", "fraud", "running")
    detail = group_detail(group, owner=owner_of(seen, "fraud"))
    assert (detail.pipeline, detail.pipeline_state) == ("fraud", "running")


# Attention -------------------------------------------------------------------------------------------


def test_a_job_that_failed_or_went_silent_needs_attention_and_leads_to_its_page() -> None:
    failed = status("nightly", state="failed", reason="division by zero")
    (told,) = needs_attention(snapshot(failed, status("done", state="stopped")))
    assert (told.severity, told.link) == ("critical", "/pipelines/nightly#errors")
    assert told.why == "division by zero"
    (told,) = needs_attention(snapshot(status(), heard_ms=NOW - 120_000))
    assert told.what == "fraud has stopped reporting"
    assert "for 2 min; it ran on h1 as process 42" in told.why
    (told,) = needs_attention(snapshot(status(state="waiting", reason="no broker answers at b:2")))
    assert told.severity == "warning"
    assert needs_attention(snapshot(status())) == []


# The picture -----------------------------------------------------------------------------------------


def drawn(**more: object) -> ElementTree.Element:
    return ElementTree.fromstring(picture(status(), NOW, **more))  # type: ignore[arg-type]


SVG = "{http://www.w3.org/2000/svg}"


def test_the_graph_has_rates_on_arrows_and_numbers_in_boxes() -> None:
    root = drawn()
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "12.4/s" in texts
    assert "lag 30" in texts
    assert "state 5 keys, 900 B" in texts
    assert "watermark 16.4 s behind" in texts
    assert "burst <1>" in texts
    bad = [element.text for element in root.iter(f"{SVG}text") if "bad" in str(element.get("class"))]
    assert bad == ["rejected 2"]
    assert len([e for e in root.iter(f"{SVG}text") if e.get("class") == "rate"]) == 1, "what is known"
    assert list(root.iter(f"{SVG}style")) == [], "the page's policy would refuse it"
    assert next(link.get("href") for link in root.iter(f"{SVG}a")) == "/pipelines/fraud?node=t0#graph"


def test_a_store_that_windows_share_is_not_shown_as_each_ones_own() -> None:
    told = status()
    told = replace(told, nodes=[replace(node, shared=node.entries is not None) for node in told.nodes])
    texts = [element.text for element in ElementTree.fromstring(picture(told, NOW)).iter(f"{SVG}text")]
    assert "shared state 5 keys" in texts


def test_a_job_that_has_ended_shows_what_went_through_it() -> None:
    texts = [element.text for element in drawn(alive=False).iter(f"{SVG}text")]
    assert "798" in texts
    assert "12.4/s" not in texts


def test_the_box_that_failed_and_the_one_that_is_looked_at_are_marked() -> None:
    failed = status(errors=[JobError(NOW, "no", operator="burst", fatal=True)])
    root = ElementTree.fromstring(picture(failed, NOW, chosen="t2"))
    marks = {g.findtext(f"{SVG}text"): g.get("class") for g in root.iter(f"{SVG}g")}
    assert "blamed" in str(marks["burst <1>"])
    assert "chosen" in str(marks["alerts"])


def test_a_chosen_box_has_its_arrows_and_its_query() -> None:
    found = chosen_node(status(), "s1")
    assert found is not None
    assert [(node.title, edge.rows) for node, edge in found.into] == [("payments", 798)]
    assert [(node.title, edge.rows) for node, edge in found.out] == [("alerts", None)]
    assert found.query is None
    assert chosen_node(status(), "gone") is None


# Where the time went ---------------------------------------------------------------------------------

parts = st.dictionaries(st.sampled_from(["look", "process", "rest", "commit", "new"]), st.integers(0, 10**6))


@given(st.lists(st.tuples(parts, st.integers(0, 10**6)), min_size=1, max_size=20))
def test_bars_stand_on_the_ground_and_within_the_scale(
    given_batches: list[tuple[dict[str, int], int]],
) -> None:
    batches = [
        BatchReport("payments", n, NOW, ms, 1, 1, spent) for n, (spent, ms) in enumerate(given_batches)
    ]
    (timeline,) = timelines(status(batches=batches))
    for bar in timeline.bars:
        below = 100.0
        for part in bar.parts:
            assert abs(part.top + part.height - below) < 0.05
            assert part.top >= -0.05
            below = part.top
        assert bar.cut == (sum(bar.batch.parts.values()) > timeline.most_ms)


def test_one_batch_that_took_far_longer_does_not_make_the_others_flat() -> None:
    took = [30_000, 500, 600, 500, 700]
    batches = [BatchReport("payments", n, NOW, ms, 1, 1, {"process": ms}) for n, ms in enumerate(took)]
    (timeline,) = timelines(status(batches=batches))
    assert timeline.most_ms == 2400
    assert [bar.cut for bar in timeline.bars] == [True, False, False, False, False]
    assert timeline.bars[0].parts[0].height == 100


def test_a_query_without_a_batch_has_no_timeline() -> None:
    assert timelines(status()) == []
