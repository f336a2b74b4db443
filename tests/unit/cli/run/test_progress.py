"""What ``millstream run`` prints after a batch."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import Topology
from millstream.cli.run.progress import Printer, ProgressFormat
from millstream.core.errors import MillstreamError
from millstream.pipeline.run.reporting.progress import BatchProgress, OperatorStatus
from millstream.pipeline.run.reporting.totals import Totals

BATCH = BatchProgress(
    "payments", 7, 240, 2, {"topic alerts": 3}, None, 412, 0, steps={"send": 4.5}, lags={"payments": 5}
)
IDLE = BatchProgress("payments", 8, 0, 0, {"topic alerts": 0}, None, 9, 0)


def test_a_batch_is_a_line_and_one_without_rows_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer()
    for progress in (BATCH, IDLE):
        printer.show(progress)
    assert capsys.readouterr().out == "payments #7  in 240  out alerts 3  rejected 2  lag 5  412 ms\n"


def test_as_json_a_batch_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(ProgressFormat.JSON).show(BATCH)
    found = json.loads(capsys.readouterr().out)
    assert (found["rows_in"], found["rows_out"], found["lag"]) == (240, {"topic alerts": 3}, 5)
    assert found["steps_ms"] == {"send": 4.5}


def test_as_json_the_start_and_the_end_are_objects_too(capsys: pytest.CaptureFixture[str]) -> None:
    printer, totals = Printer(ProgressFormat.JSON), Totals("fraud")
    printer.starting(Topology("fraud", guarantee="exactly-once"))
    printer.show(BATCH)
    totals.add(BATCH)
    totals.add_unkeyed(7)
    printer.again().show(BATCH)
    printer.failed(MillstreamError("no disk"))
    printer.ended(totals.progress(), stopped=True)
    starting, batch, rebuild, failed, ended = map(json.loads, capsys.readouterr().out.splitlines())
    assert (starting["event"], starting["guarantee"]) == ("starting", "exactly-once")
    assert (batch["event"], batch["query"], rebuild["event"]) == ("batch", "payments", "rebuild")
    assert (failed["event"], failed["error"]) == ("failed", "no disk")
    del ended["at_ms"]
    assert ended == {
        "event": "ended",
        "job": "fraud",
        "stopped": True,
        "batches": 1,
        "rows_in": 240,
        "rejected": 2,
        "unkeyed": 7,
    }


counts = st.integers(0, 10**10)


@st.composite
def batches(draw: st.DrawFn) -> BatchProgress:
    size = st.text("abcdefgh.-_", min_size=1, max_size=120)
    operators = {
        name: OperatorStatus(None, None, None, None, *(draw(counts) for _ in range(6)))
        for name in draw(st.lists(size, max_size=6))
    }
    return BatchProgress(
        draw(size),
        draw(st.integers(0, 10**7)),
        draw(counts),
        draw(counts),
        draw(st.dictionaries(size.map("topic {}".format), counts, max_size=6)),
        draw(st.none() | st.datetimes()),
        draw(st.integers(0, 10**8)),
        0,
        repeats=draw(st.integers(0, 99)),
        operators=operators,
        lags=draw(st.dictionaries(size, counts, max_size=3)),
    )


@given(batches())
def test_a_line_takes_one_row_of_a_terminal_whatever_the_batch(batch: BatchProgress) -> None:
    line = batch.line(80)
    assert len(line) <= 80
    assert f"#{batch.batch}  in " in line
    assert " ms" in line, "how long it took"
    assert ("  lag " in line) == (batch.lag is not None)
    assert batch.line().startswith(f"{batch.query} #")


def test_what_matters_least_is_left_out_first() -> None:
    operators = {"busy": OperatorStatus(None, None, None, None, 550_000, 1_200_000, late=3)}
    sinks = {"topic payments.enriched": 12_345, "view blocked_cards": 7}
    batch = BatchProgress(
        "payments.enriched",
        7,
        240_000,
        2,
        sinks,
        datetime(2026, 1, 1, 12),  # noqa: DTZ001
        412,
        0,
        operators=operators,
        lags={"payments": 5},
    )
    assert [batch.line(width) for width in (170, 130, 105, 80, 60)] == [
        "payments.enriched #7  in 240,000  out payments.enriched 12,345, blocked_cards 7  rejected 2  lag 5"
        "  watermark 12:00:00  late 3  state 550k keys 1.2 MB  412 ms",
        "payments.enriched #7  in 240,000  out 12,352  rejected 2  lag 5  watermark 12:00:00  late 3"
        "  state 550k keys 1.2 MB  412 ms",
        "payments.enriched #7  in 240,000  out 12,352  rejected 2  lag 5  watermark 12:00:00  late 3  412 ms",
        "payments.enriched #7  in 240,000  out 12,352  rejected 2  lag 5  late 3  412 ms",
        "payments.… #7  in 240k  out 12.4k  left out 5  lag 5  412 ms",
    ]
