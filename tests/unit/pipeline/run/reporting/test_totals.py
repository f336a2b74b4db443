"""What a job has done in all, from what its batches report."""

from __future__ import annotations

from millstream.pipeline.run.reporting.html import html
from millstream.pipeline.run.reporting.progress import BatchProgress
from millstream.pipeline.run.reporting.totals import Totals


def batch(query: str, number: int, rows_in: int, out: int, **more: int) -> BatchProgress:
    lags = {query: more.pop("lag", 0)}
    return BatchProgress(
        query, number, rows_in, more.pop("rejected", 0), {"topic out": out}, None, 5, 0, lags=lags
    )


def test_batches_add_up_and_the_last_one_of_each_query_is_kept() -> None:
    totals = Totals("fraud")
    for one in (batch("a", 0, 10, 3, rejected=1), batch("b", 0, 5, 5, lag=7), batch("a", 1, 1, 1, lag=2)):
        totals.add(one)
    totals.add_unkeyed(2)
    progress = totals.progress()
    assert (progress.batches, progress.rows_in, progress.rejected, progress.unkeyed) == (3, 16, 1, 2)
    assert progress.rows_out == {"topic out": 9}
    assert {name: one.batch for name, one in progress.queries.items()} == {"a": 1, "b": 0}
    assert progress.lag == 9
    assert str(progress) == "16 records in 3 batches, 1 rejected, 2 rows without a key left out of the views"
    assert progress.as_json()["queries"]["b"]["lag"] == 7


def test_a_job_that_did_nothing_has_no_lag_and_one_summary() -> None:
    summary = Totals("fraud").summary(interrupted=True)
    assert (summary.job, summary.rows_in, summary.lag, summary.interrupted) == ("fraud", 0, None, True)
    assert str(summary) == "0 records in 0 batches"


def test_a_notebook_shows_names_as_text_and_not_as_markup() -> None:
    totals = Totals("<b>job</b>")
    totals.add(batch("<script>", 3, 1200, 4, lag=1))
    shown = html(totals.progress(), "failed", "x < y")
    assert "<script>" not in shown
    assert "&lt;script&gt;</td><td>3</td><td>1,200</td><td>out 4</td>" in shown
    assert "&lt;b&gt;job&lt;/b&gt;</b> failed: x &lt; y" in shown
