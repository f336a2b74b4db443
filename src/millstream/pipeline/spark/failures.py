"""Reads a failure: its cause in a line or two, the user's line, and whether a retry may help.

Stack traces, query plans and SQLSTATE codes are left out.
"""

from __future__ import annotations

import re

from millstream.core.errors import BrokerUnavailable, ProducerFenced, RequestFailed
from millstream.wire.codec.schemas import error_codes


def condensed(error: BaseException) -> str:
    """What went wrong: a Python worker's exception, the last cause of a Java one, or Spark's own message."""
    text = str(error)
    _, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    if traceback:
        # The first line that is not indented ends the stack and names the exception.
        said = re.search(r"^(?:[\w]+\.)*(\w+(?:: .*)?)$", after, re.MULTILINE)
        if said is not None:
            return said[1].removeprefix("OperatorFailed: ")  # its message says which function failed, and how
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


# Messages that only wrap a cause. PySpark keeps the cause beside the message.
_SAYS_NOTHING = re.compile(r"Task not serializable|Job aborted\.?")


def _root(error: BaseException) -> str:
    """The first line of the root cause; empty if the error has no cause."""
    cause = error
    while (deeper := getattr(cause, "_cause", None)) is not None:
        cause = deeper
    return "" if cause is error else str(cause).partition("\n")[0]


def line_in(text: str) -> str | None:
    """The last line of a user's file in a traceback that a worker sent back."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    ours = ("site-packages", "/millstream/pipeline/", "/lib/python", "<")
    own = [frame for frame in frames if not any(part in frame[0] for part in ours)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else None


# Spark's messages for a lost task, or for losing something that a task needed.
_SPARK_LOST = re.compile(
    r"FetchFailed|ExecutorLostFailure|Missing an output location|executor .* lost|"
    r"Python worker exited unexpectedly|worker (?:failed )?to connect back|"
    r"port number from \S+daemon",  # Spark's daemon or millstream's
    re.I,
)
# Errors that fail one transaction but not the next one.
_OF_THIS_TRANSACTION = (
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_ABORTABLE",
)


def may_pass(error: BaseException) -> bool:
    """True if the same batch may succeed a little later: brokers were away, or tasks were lost. False if a
    user's function or a setting is to blame."""
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
    """True if a producer was fenced because another one has taken over, in the driver or in a task."""
    return isinstance(error, ProducerFenced) or _worker_exception(str(error)) == "ProducerFenced"


def _worker_exception(text: str) -> str | None:
    """The class of the exception that ended a Python worker."""
    _, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    said = re.search(r"^(?:\w+\.)*(\w+)(?:: .*)?$", after, re.MULTILINE) if traceback else None
    return said[1] if said is not None else None


def _passes(name: str) -> bool:
    found = error_codes().__members__.get(name.lower())
    return name in _OF_THIS_TRANSACTION or (found is not None and bool(found.retriable))
