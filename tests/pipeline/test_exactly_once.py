"""``guarantee="exactly-once"``: what a batch writes is there once, whatever happens on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import TransactionClient
from millstream.client.text.position import TopicPartition
from millstream.core.errors import TopologyError
from millstream.pipeline.run.delivery import batch_tasks
from millstream.pipeline.run.delivery.delivery import Delivery
from millstream.pipeline.run.delivery.ledger import LedgerProblem
from millstream.pipeline.run.delivery.transactions import JobTakenOver, QueryTransactions
from tests.pipeline.test_job import payment
from tests.support.counting_job import Scene
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scene(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Scene:
    """On our broker, or where a test asks for it, on Apache Kafka."""
    broker = getattr(request, "param", "our_address")
    name = f"job{abs(hash(request.node.nodeid)) % 10**10}"
    return Scene(spark, request.getfixturevalue(broker), tmp_path, name)


both_brokers = pytest.mark.parametrize(
    "scene", ["our_address", "apache_address"], indirect=True, ids=["ours", "Apache Kafka"]
)


@both_brokers
def test_results_offsets_and_view_come_together(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1), payment("a", 7, 2), payment("b", 1, 3), b"oops")
    seen = scene.run()
    assert scene.alerts() == [("a", 2)]
    assert len(scene.read("all")) == 3
    assert scene.read("bad") == [b"oops"]
    assert scene.view() == {"a": (2, 12.0), "b": (1, 1.0)}
    assert sum(progress.rows_out[f"topic {scene.name}.all"] for progress in seen) == 3
    assert list(seen[0].steps) == ["ledger", "begin", "send", "offsets", "commit", "views"]
    with Admin(Connection(scene.address)) as admin:
        assert sum(admin.committed(scene.name).values()) == 4

    scene.produce(payment("b", 2, 4), partition=1)
    scene.run()
    assert scene.alerts() == [("a", 2), ("b", 2)]
    assert scene.view() == {"a": (2, 12.0), "b": (2, 3.0)}


def test_a_batch_that_is_in_the_log_is_not_written_again_but_the_state_goes_on(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1), payment("a", 7, 2))
    scene.run()
    scene.forget_last_batch()
    shutil.copytree(scene.home / "checkpoint", scene.home / "copy")
    scene.run()
    scene.produce(payment("a", 1, 3))
    scene.run()
    assert scene.alerts() == [("a", 2), ("a", 3)]
    assert len(scene.read("all", "read_uncommitted")) == 3
    assert scene.view() == {"a": (3, 13.0)}

    with pytest.raises(LedgerProblem, match="ahead of the checkpoint"):
        scene.run(checkpoint=str(scene.home / "copy"))


class Killed(Exception):
    """Stands for the end of the process: nothing after it is done, not even aborting."""


@pytest.mark.parametrize(
    ("where", "sender"),
    [
        ("begin", "driver"),
        ("send", "driver"),
        ("offsets", "tasks"),
        ("commit", "tasks"),
    ],
)
def test_a_driver_that_ends_after_any_step_is_continued_by_the_next(
    scene: Scene, where: str, sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_tasks, "is_one_machine", lambda context: sender == "driver")
    scene.produce(payment("a", 5, 1), payment("b", 7, 2))
    scene.run()
    scene.produce(payment("a", 1, 3), payment("b", 1, 3), partition=1)
    with monkeypatch.context() as patched:
        places = {
            "begin": (QueryTransactions, "begin"),
            "send": (batch_tasks.BatchTasks, "send_in_transaction"),
            "offsets": (QueryTransactions, "commit_offsets"),
            "commit": (QueryTransactions, "commit"),
        }
        owner, name = places[where]
        step = getattr(owner, name)

        def last_act(*arguments: Any) -> None:
            step(*arguments)
            raise Killed

        patched.setattr(owner, name, last_act)
        patched.setattr(QueryTransactions, "abort", lambda self: None)
        with pytest.raises(TopologyError, match="Killed"):
            scene.run()
    seen = scene.run()
    assert ("replay" in seen[0].steps) == (where == "commit")
    assert scene.alerts() == [("a", 2), ("b", 2)]
    assert len(scene.read("all")) == 4
    assert scene.view() == {"a": (2, 6.0), "b": (2, 8.0)}
    uncommitted = len(scene.read("all", "read_uncommitted"))
    assert uncommitted == (6 if where in ("send", "offsets") else 4)  # what was sent is sent again


@both_brokers
def test_a_task_that_fails_after_having_sent_fails_the_transaction_and_not_the_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import cloudpickle

    from tests.support import failing_tasks

    cloudpickle.register_pickle_by_value(failing_tasks)
    monkeypatch.setattr(batch_tasks, "is_one_machine", lambda context: False)
    monkeypatch.setattr(
        batch_tasks,
        "SendInTransaction",
        failing_tasks.once(scene.home / "failed", failing_tasks.after_sending),
    )
    said: list[str] = []
    scene.produce(payment("a", 5, 1), payment("a", 7, 2))
    (progress,) = [p for p in scene.run(on_trouble=said.append) if p.rows_in]
    assert (scene.home / "failed").exists()
    assert progress.repeats == 1
    assert "the batch is run again" in said[0]
    assert scene.alerts() == [("a", 2)]
    assert len(scene.read("all")) == 2
    assert len(scene.read("all", "read_uncommitted")) > 2


@both_brokers
def test_a_run_that_was_taken_over_says_so_and_ends(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1))
    job = scene.job(available_now=False)
    job.prepare()
    job.start(scene.spark)
    try:
        wait_for(lambda: len(scene.read("all")) == 1, timeout=400, what="the first batch is delivered")
        cluster = Cluster(Connection(scene.address))
        TransactionClient(cluster).init(scene.name, 60_000)  # as another run does when it starts
        cluster.close()
        scene.produce(payment("a", 7, 2))
        error = wait_for(job.failed, timeout=400, what="the job has noticed")
        assert isinstance(error, JobTakenOver)
        assert "another run of this job has taken over" in str(error)
        assert len(scene.read("all", "read_uncommitted")) == 1  # it had not even begun
    finally:
        job.stop()


def test_an_idle_job_keeps_its_ledger_and_its_fencing_alive(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1))
    seen: list[Any] = []
    job = scene.job(available_now=False, on_progress=seen.append)
    job.prepare()
    job.start(scene.spark)
    try:
        wait_for(lambda: len(seen) > 1, timeout=400, what="two batches are done: there is no third")
        (delivery,) = job._deliveries.values()
        cluster = Cluster(Connection(scene.address))
        place = TopicPartition(scene.payments, 0)
        before = cluster.commits(scene.name)[place]
        cluster.commit(scene.name, {place: 0})  # so that it can be seen to come back
        delivery.refresh(after_s=0)
        assert cluster.commits(scene.name)[place] == before
        assert job.failed() is None
        TransactionClient(cluster).init(scene.name, 60_000)
        delivery.refresh(after_s=0)
        assert isinstance(job.failed(), JobTakenOver)
        cluster.close()
    finally:
        job.stop()


def test_a_ledger_that_is_gone_stops_the_job_until_it_is_told_to_go_on(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1))
    scene.run()
    with Admin(Connection(scene.address)) as admin:
        assert admin.delete_groups([scene.name]) == {scene.name: None}
    scene.produce(payment("a", 7, 2))
    with pytest.raises(LedgerProblem, match=r"they have expired .* or were deleted"):
        scene.run()
    assert len(scene.read("all")) == 1
    scene.run(new_ledger=True)
    scene.run()
    assert len(scene.read("all")) == 2
    assert scene.view() == {"a": (2, 12.0)}


def test_another_checkpoint_of_the_same_job_is_refused_before_it_does_harm(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1))
    scene.run()
    refused = scene.job(checkpoint=str(scene.home / "second"))
    refused.prepare()
    with pytest.raises(LedgerProblem, match="belongs to another checkpoint, at batch"):
        refused.start(scene.spark)
    refused.close()  # without an error of its own, which would be said in place of the refusal
    scene.produce(payment("a", 7, 2))
    scene.run()  # the first one was not fenced
    assert len(scene.read("all")) == 2


def test_a_checkpoint_of_another_job_is_refused(scene: Scene) -> None:
    scene.produce(payment("a", 5, 1))
    scene.run()
    scene.name, name = "another", scene.name
    with pytest.raises(TopologyError, match=f"belongs to the job {name!r}, and this job is 'another'"):
        scene.job().prepare()


@pytest.mark.parametrize(("guarantee", "times"), [("at-least-once", 2), ("at-most-once", 1)])
def test_the_other_guarantees_are_the_same_with_the_ledger_after_or_before(
    scene: Scene, guarantee: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.produce(payment("a", 5, 1), payment("a", 7, 2))
    with monkeypatch.context() as patched:

        def killed(*_: Any) -> None:
            raise Killed

        patched.setattr(Delivery, "_count", killed)  # after the sending
        with pytest.raises(TopologyError, match="Killed"):
            scene.run(scene.flow(guarantee))
    scene.run(scene.flow(guarantee))
    assert len(scene.read("all")) == 2 * times
    assert scene.view() == ({"a": (2, 12.0)} if guarantee == "at-least-once" else {})
    scene.forget_last_batch()
    scene.run(scene.flow(guarantee))
    assert len(scene.read("all")) == 2 * times  # the ledger had it


def test_what_can_not_be_promised_is_refused_before_anything_starts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionClient, "version", lambda self: 0)
    with pytest.raises(
        TopologyError, match=r"needs transactions, and the cluster at .* does not support them"
    ):
        scene.job().prepare()
    monkeypatch.undo()
    for settings, says in (
        ({"spark.speculation": "true"}, "spark.speculation=true"),
        ({"spark.stage.maxConsecutiveAttempts": "4"}, "needs spark.stage.maxConsecutiveAttempts=1"),
    ):
        job = scene.job()
        job.prepare()
        with pytest.raises(TopologyError, match=says):
            job.start(_session_with(settings))


def _session_with(settings: dict[str, str]) -> Any:
    """As much of a session as is looked at before anything else is done with it."""

    class Stand:
        sparkContext = property(lambda self: self)  # noqa: N815

        def getConf(self) -> dict[str, str]:
            return {"spark.stage.maxConsecutiveAttempts": "1", **settings}

    return Stand()


def test_a_task_or_a_stage_that_spark_repeats_is_run_again_as_a_whole(
    our_address: str, tmp_path: Path
) -> None:
    """In a Spark of its own, which repeats tasks: the one the tests share does not."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.repeating_spark", our_address, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes.keys() == {"task", "stage"}
    for fault, outcome in outcomes.items():
        assert ("started again" if fault == "task" else "shuffle_") in outcome["trouble"][0]
        assert outcome["committed"] == 40
        assert outcome["uncommitted"] > 40
