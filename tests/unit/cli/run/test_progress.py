"""What ``millstream run`` prints after a batch."""

from __future__ import annotations

import json

import pytest

from millstream.cli.run.progress import Printer, ProgressFormat
from millstream.pipeline.run.reporting.progress import BatchProgress

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
