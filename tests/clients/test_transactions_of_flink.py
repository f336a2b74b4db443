"""Flink's Kafka sink, exactly once: killed with transactions prepared, it commits them when it comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.java_program import java_program
from tests.support.killable import KINDS, killable
from tests.support.maven import REPOSITORY, JarsUnavailable, fetch_jars
from tests.support.topics import create_topic, produce, values
from tests.support.transactional import read_with_confluent
from tests.support.waiting import wait_for

POM = REPOSITORY / "tests" / "support" / "flink_kafka" / "pom.xml"
KILLS = 2


def newest(checkpoints: Path) -> list[Path]:
    """The last complete checkpoint of the last job, if there is one."""
    complete = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    return [path.parent for path in complete[-1:]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_is_killed_between_checkpoints_is_exact(kind: str, tmp_path: Path) -> None:
    try:
        jars = fetch_jars(POM)
        java_program("FlinkCopy", jars)
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    checkpoints = tmp_path / "checkpoints"
    sent: list[str] = []
    with killable(kind, tmp_path) as broker:
        for topic in ("in", "out"):
            create_topic(broker.address, topic, 1)

        def more() -> None:
            new = [str(number) for number in range(len(sent), len(sent) + 500)]
            produce(broker.address, "in", values(*new))
            sent.extend(new)

        def read(isolation: str) -> list[str]:
            return [value for _, _, value in read_with_confluent(broker.address, "out", 1, isolation)]

        errors = tmp_path / "errors"
        running: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(KILLS + 1):
                found = newest(checkpoints)
                program = java_program(
                    "FlinkCopy",
                    jars,
                    *(broker.address, str(checkpoints), "in", "out", *map(str, found)),
                    heap="512m",
                )
                with errors.open("ab") as output:
                    running.append(subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=output))

                def all_committed() -> bool:
                    assert running[-1].poll() is None, errors.read_text()[-3000:]
                    return read("read_committed") == sent

                more()
                wait_for(all_committed, timeout=90, what=f"the copy is complete, run {number}", every=0.3)
                if number == KILLS:
                    break
                broker.kill()
                broker.start()
                more()
                # It is killed with the records sent and their transaction not committed.
                wait_for(
                    lambda: set(read("read_uncommitted")) >= set(sent),
                    timeout=90,
                    what="it is sent",
                    every=0.05,
                )
                running[-1].kill()
                running[-1].wait()
        finally:
            for process in running:
                process.kill()
                process.wait()
        assert read("read_committed") == sent
