"""What a program may choose about a run, before Spark and a broker are needed."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from millstream import Topology
from millstream.core.errors import ConfigError
from millstream.pipeline.run.claims import claimed
from millstream.pipeline.run.options import RunOptions


def test_run_and_start_have_the_same_options_and_all_of_them() -> None:
    run, start = (inspect.signature(method).parameters for method in (Topology.run, Topology.start))
    assert run == start
    assert [name for name in run if name != "self"] == [
        field.name for field in dataclasses.fields(RunOptions)
    ]


def test_one_name_and_one_checkpoint_run_once_at_a_time(tmp_path: Path) -> None:
    with claimed("fraud", str(tmp_path / "a")):
        with pytest.raises(ConfigError, match=r"the job 'fraud' is running in this process already, on .*/a"):
            claimed("fraud", str(tmp_path / "b")).__enter__()
        (tmp_path / "a").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "a")
        for same in (f"file://{tmp_path}/a/", str(tmp_path / "link")):
            with pytest.raises(ConfigError, match="is in use by the job 'fraud'"):
                claimed("other", same).__enter__()
        with claimed("other", "hdfs://jobs/a"), pytest.raises(ConfigError, match="hdfs://jobs/a is in use"):
            claimed("third", "hdfs://jobs/a/").__enter__()
    with claimed("fraud", str(tmp_path / "b")), claimed("other", str(tmp_path / "a")):
        pass


def test_a_job_that_failed_gives_up_its_name_and_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claimed("fraud", str(tmp_path)):
        _ = 1 / 0
    with claimed("fraud", str(tmp_path)):
        pass
