"""What may pass by itself, and what will not."""

from __future__ import annotations

import pytest

from millstream.client.errors import refused
from millstream.core.errors import BrokerUnavailable, ConfigError, ProducerFenced
from millstream.pipeline.spark.failures import condensed, may_pass, was_fenced

WORKER = """\
Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: Lost task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 12, in main
    process()
{0}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 12, in main
{0}

\tat java.base/java.lang.Thread.run
"""


def from_worker(said: str) -> Exception:
    return Exception(WORKER.format(said))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (BrokerUnavailable("no broker answers"), True),
        (ConnectionResetError("gone"), True),
        (refused(16, "asking"), True),  # NOT_COORDINATOR
        (refused(48, "committing"), True),  # INVALID_TXN_STATE: of this transaction, not of the next
        (refused(29, "sending"), False),  # TOPIC_AUTHORIZATION_FAILED
        (ConfigError("no such column"), False),
        (ValueError("no half measures"), False),
        (from_worker("millstream.core.errors.BrokerUnavailable: no broker answers at 127.0.0.1:1"), True),
        (
            from_worker("millstream.pipeline.run.delivery.sending.TaskRepeated: task 1 was started again"),
            True,
        ),
        (
            from_worker("millstream.core.errors.RequestFailed: t[0]: not leader (NOT_LEADER_OR_FOLLOWER)"),
            True,
        ),
        (from_worker("millstream.core.errors.RequestFailed: t[0]: too large (MESSAGE_TOO_LARGE)"), False),
        (from_worker("ValueError: no half measures"), False),
        (Exception("Job aborted: ResultStage 3 has failed: FetchFailed(null, shuffleId=1)"), True),
        (
            Exception("EOFException occurred while reading the port number from pyspark.daemon's stdout."),
            True,
        ),
        (Exception("the port number from millstream.pipeline.spark.worker_daemon's stdout."), True),
        (Exception("Job aborted due to stage failure: java.lang.OutOfMemoryError"), False),
    ],
)
def test_a_broker_or_a_task_that_was_lost_passes_and_a_mistake_does_not(
    error: Exception, passes: bool
) -> None:
    assert may_pass(error) is passes


def test_fencing_is_seen_here_and_in_tasks() -> None:
    assert was_fenced(ProducerFenced(90, "PRODUCER_FENCED", "x"))
    assert was_fenced(from_worker("millstream.core.errors.ProducerFenced: sending to t[0] (PRODUCER_FENCED)"))
    assert not was_fenced(from_worker("ValueError: ProducerFenced"))
    assert condensed(from_worker("ValueError: no half measures")) == "ValueError: no half measures"


def test_a_message_that_says_nothing_is_followed_by_the_cause_behind_it() -> None:
    class Captured(Exception):
        """As PySpark has it: the cause beside the message."""

        _cause: Exception | None = None

    wrapped, between = Captured("Task not serializable"), Captured("in between")
    wrapped._cause, between._cause = (
        between,
        Captured("java.lang.IllegalStateException: Illegal size 4 of collection, expected 5\n\tat scala"),
    )
    assert condensed(wrapped).endswith(
        "Task not serializable: java.lang.IllegalStateException: Illegal size 4 of collection, expected 5"
    )
