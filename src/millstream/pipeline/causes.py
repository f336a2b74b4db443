"""Why something failed, in a line or two: no stack, no plan, no SQLSTATE; and whose line it was."""

from __future__ import annotations

import re


def condensed(error: BaseException) -> str:
    """What went wrong: the exception of a Python worker, the last cause of a Java one, or what Spark says."""
    text = str(error)
    _, traceback, after = text.rpartition("Traceback (most recent call last):\n")
    if traceback:
        # the first line that is not indented ends the stack and says what it was
        said = re.search(r"^(?:[\w]+\.)*(\w+(?:: .*)?)$", after, re.MULTILINE)
        if said is not None:
            return said[1]
    cause = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    first = cause[-1] if cause else next((line for line in text.splitlines() if line.strip()), "")
    first = re.sub(r"^(?:\[STREAM_FAILED\].*?with exception: )?", "", first)
    first = re.sub(r"^(?:[a-z]\w*\.)+(\w+): ", "", first)
    first = re.sub(r"^\[[A-Z_.]+\] ", "", first)
    first = re.sub(r"\s*SQLSTATE: \w+.*$", "", first).strip().rstrip(";")
    if type(error).__module__.startswith(("pyspark", "py4j")) or first.startswith(type(error).__name__):
        return first
    return f"{type(error).__name__}: {first}"


def line_in(text: str) -> str | None:
    """The last line of a user's file in a traceback that came back from a worker."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    ours = ("site-packages", "/millstream/pipeline/", "/lib/python", "<")
    own = [frame for frame in frames if not any(part in frame[0] for part in ours)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else None
