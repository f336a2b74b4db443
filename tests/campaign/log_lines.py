"""The lines of the broker's log, at WARNING and above, that the work or the faults explain. No I/O.

Every other line is a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tests.campaign.findings import Finding
from tests.campaign.schedule import ARCHIVE_AWAY, FILL_DISK, KILL_BROKER

_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) +(?P<name>[\w.]+): (?P<text>.*)$")

# What explains a line: a fault that has struck, or the work itself ("").
_EXPECTED: list[tuple[str, str]] = [
    ("", r"producers are held, because group"),
    ("", r"more records came than its ring holds"),
    ("", r"will lose records of .* retention overtakes it"),
    ("", r"fell behind the start of"),
    ("", r"the transaction is open for longer than its \d+ ms and is aborted"),
    (
        "",
        r"a producer that was replaced was refused",
    ),  # after its transaction had timed out, or it was killed
    ("", r"the disk is full in .* at present rates"),
    ("", r"^\d+ more like the last$"),  # the line before it was judged itself
    (KILL_BROKER, r"cut at byte \d+: \d+ bytes of a write that a crash interrupted"),
    (KILL_BROKER, r"transactions are open in the logs, but belong to no transactional id"),
    (FILL_DISK, r"the disk is full"),
    (FILL_DISK, r"No space left on device"),
    (FILL_DISK, r"can't keep a reserve of"),
    (ARCHIVE_AWAY, r"a reader is told to try again: there is no .* in the archive"),
    (ARCHIVE_AWAY, r"can't be archived, it is tried again: there is no .* in the archive"),
    (ARCHIVE_AWAY, r"can't be archived, it is tried again: the archive .* should have .*, but does not"),
    (ARCHIVE_AWAY, r"Archiving continues when that is over"),
    (ARCHIVE_AWAY, r"the archive .* does not answer; the broker shuts down without it"),
]
_PATTERNS = [(fault, re.compile(pattern)) for fault, pattern in _EXPECTED]


def surprising(lines: Iterable[str], struck: Iterable[str]) -> Iterator[Finding]:
    """The lines that nothing explains. ``struck`` are the faults since the directory was created."""
    faults = {"", *struck}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            if line.strip() and not line.startswith(
                " "
            ):  # most lines of a traceback are indented; the others are findings
                yield Finding("broker", "unexpected output", line[:400])
        elif match["level"] not in ("DEBUG", "INFO") and not any(
            fault in faults and pattern.search(match["text"]) for fault, pattern in _PATTERNS
        ):
            yield Finding("broker", f"{match['level'].lower()} in the log", match["text"][:400])
