"""A plain program that runs jobs: with a Spark that they start and end, and in a session of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from millstream import Broker
from tests.pipeline.test_job import produce
from tests.support.topics import create_topic


def test_jobs_start_and_end_spark_and_ctrl_c_ends_a_run_in_order(
    millstream_broker: Broker, tmp_path: Path
) -> None:
    create_topic(millstream_broker.address, "payments", partitions=1)
    produce(millstream_broker, [b'{"card": "a"}', b'{"card": "b"}'])
    said: dict[str, Any] = {}
    with (tmp_path / "complaints").open("w") as complaints:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lodger", millstream_broker.address, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            start_new_session=True,
        )
    try:
        assert program.stdout is not None
        ends = []
        for line in program.stdout:
            step = json.loads(line)
            if step["step"] == "runs":
                os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all its processes
            elif step["step"] == "ended":
                ends.append(step)
            else:
                said[step["step"]] = step
        complained = (tmp_path / "complaints").read_text()
        assert program.wait(120) == 0, complained
    finally:
        program.kill()
        program.wait()
    assert said["both"]["active"] == [True, True], "they share one Spark"
    assert said["first"]["state"] == "running", "which does not end with the first to stop"
    assert said["own Spark"]["changes"] == {}
    assert said["own Spark"]["context"] is None
    assert ends == [{"step": "ended", "rows": 2, "interrupted": True}] * 2
    assert said["given session"]["changes"] == {}
    assert said["given session"]["rows"] == 3, "the session is still there"
    assert "the Spark session was stopped while the job was running" in said["session stopped"]["error"]
    assert said["session stopped"]["state"] == "failed"
    assert "Traceback" not in complained
