"""Why something failed, in a line or two: no stack, no plan, no SQLSTATE; and whose line it was."""

from __future__ import annotations

import re

from millstream.errors import BrokerUnavailable, ProducerFenced, RequestFailed
from millstream.wire.schemas import error_codes


def condensed(error: BaseException) -> str:
    """What went wrong: the exception of a Python worker, the last cause of a Java one, or what Spark says."""
    text = str(error)
    _, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    if traceback:
        # the first line that is not indented ends the stack and says what it was
        said = re.search(r"^(?:[\w]+\.)*(\w+(?:: .*)?)$", after, re.MULTILINE)
        if said is not None:
            return said[1].removeprefix("OperatorFailed: ")  # it says by itself who failed, and how
    cause = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    first = cause[-1] if cause else next((line for line in text.splitlines() if line.strip()), "")
    first = re.sub(r"^(?:\[STREAM_FAILED\].*?with exception: )?", "", first)
    first = re.sub(r"^(?:[a-z]\w*\.)+(\w+): ", "", first)
    first = re.sub(r"^\[[A-Z_.]+\] ", "", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first).strip().rstrip(";")
    if _SAYS_NOTHING.fullmatch(first) and (root := _root(error)):
        first = f"{first}: {root}"
    first = re.sub(r"^Cannot resolve routine `(.*?)` on search path .*$", r"there is no function '\1'", first)
    if type(error).__module__.startswith(("pyspark", "py4j")) or first.startswith(type(error).__name__):
        return first
    return f"{type(error).__name__}: {first}"


# What Spark wraps a cause in, which PySpark keeps beside the message.
_SAYS_NOTHING = re.compile(r"Task not serializable|Job aborted\.?")


def _root(error: BaseException) -> str:
    """The first line of the cause behind all others; empty if there is none."""
    cause = error
    while (deeper := getattr(cause, "_cause", None)) is not None:
        cause = deeper
    return "" if cause is error else str(cause).partition("\n")[0]


def line_in(text: str) -> str | None:
    """The last line of a user's file in a traceback that came back from a worker."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    ours = ("site-packages", "/millstream/pipeline/", "/lib/python", "<")
    own = [frame for frame in frames if not any(part in frame[0] for part in ours)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else None


# Spark's own words for having lost a task, or what a task needed.
_SPARK_LOST = re.compile(
    r"FetchFailed|ExecutorLostFailure|Missing an output location|executor .* lost|"
    r"Python worker exited unexpectedly|worker (?:failed )?to connect back|"
    r"port number from \S+daemon",  # Spark's, or ours
    re.I,
)
# Refusals that hold for a transaction and not for the next one.
_OF_THIS_TRANSACTION = (
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_ABORTABLE",
)


def may_pass(error: BaseException) -> bool:
    """Whether the same batch may come through a little later: brokers that were away, tasks that were lost.
    What a user's function or a setting is to blame for does not."""
    if isinstance(error, BrokerUnavailable | OSError):
        return True
    if isinstance(error, RequestFailed):
        return _passes(error.name)
    text = str(error)
    name = _worker_exception(text)
    if name is None:
        return _SPARK_LOST.search(text) is not None
    if name == "RequestFailed":
        said = re.search(r"\(([A-Z_]+)\)$", condensed(error))
        return said is not None and _passes(said[1])
    return name in ("BrokerUnavailable", "TaskRepeated") or name.endswith(("ConnectionError", "TimeoutError"))


def was_fenced(error: BaseException) -> bool:
    """Whether somebody was refused because another has taken over, here or in a task."""
    return isinstance(error, ProducerFenced) or _worker_exception(str(error)) == "ProducerFenced"


def _worker_exception(text: str) -> str | None:
    """The class of the exception that ended a Python worker."""
    _, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    said = re.search(r"^(?:\w+\.)*(\w+)(?:: .*)?$", after, re.MULTILINE) if traceback else None
    return said[1] if said is not None else None


def _passes(name: str) -> bool:
    found = error_codes().__members__.get(name.lower())
    return name in _OF_THIS_TRANSACTION or (found is not None and bool(found.retriable))
