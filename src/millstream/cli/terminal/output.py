"""Prints the output of commands: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import json
import re
import select
import shutil
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, Any

import typer


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", metavar="table|json", help="A table for people, or JSON for programs.")
]

Cell = str | int | None


# Control characters that a terminal would obey, and characters that change the direction of text. Client ids,
# keys and the like are untrusted text. Line feeds and tabs are kept where a message has several lines, never
# within a cell.
_TERMINAL_ORDERS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_CONTROLS = re.compile(f"[{_TERMINAL_ORDERS}]")
_CONTROLS_AND_SPACES = re.compile(rf"[{_TERMINAL_ORDERS}\t\n]")


def printable(text: str, *, lines: bool = False) -> str:
    """Text with its control characters escaped (as ``\\x1b``), so that a terminal does not obey them. With
    ``lines``, line feeds and tabs are kept.
    """
    pattern = _CONTROLS if lines else _CONTROLS_AND_SPACES
    return pattern.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def for_terminal(data: bytes) -> bytes:
    """Records with control characters escaped, safe to write to a terminal."""
    return printable(data.decode("utf-8", "backslashreplace"), lines=True).encode()


def say(text: str = "", *, flush: bool = False) -> None:
    """Print a sentence that may contain untrusted text."""
    print(printable(text, lines=True), flush=flush)


def show_json(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    print(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows under their titles. Whole numbers are aligned right, and None is a dash.

    On a terminal, digits of numbers are grouped, and text that is too wide is folded within its column.
    Nothing is ever cut off: a number without its last digits is worse than an uneven line.
    """
    terminal = sys.stdout.isatty()
    for line in table_lines(columns, rows, shutil.get_terminal_size().columns if terminal else None):
        print(line)


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], width: int | None = None
) -> Iterator[str]:
    """The lines of a table: for a terminal of ``width``, or plain columns for a pipe."""
    cells = [[_text(cell, grouped=width is not None) for cell in row] for row in rows]
    right = [
        any(isinstance(row[at], int) for row in rows) and not any(isinstance(row[at], str) for row in rows)
        for at in range(len(columns))
    ]
    widths = [max(len(line[at]) for line in (columns, *cells)) for at in range(len(columns))]
    if width is not None:
        _narrow(widths, right, width)
    yield from _row(columns, widths, right, "\033[1m{}\033[0m" if width is not None else "{}")
    for line in cells:
        yield from _row(line, widths, right, "{}")


def _narrow(widths: list[int], right: Sequence[bool], width: int) -> None:
    """Make the widest text column narrower by as much as the table is too wide. Numbers are never folded."""
    excess = sum(widths) + 2 * (len(widths) - 1) - width
    texts = [at for at in range(len(widths)) if not right[at]]
    if excess > 0 and texts:
        widest = max(texts, key=lambda at: widths[at])
        if widths[widest] - excess >= 12:
            widths[widest] -= excess


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], style: str) -> Iterator[str]:
    folded = [
        [cell[at : at + width] for at in range(0, len(cell), width)] or [""]
        for cell, width in zip(cells, widths, strict=True)
    ]
    for parts in zip_longest(*folded, fillvalue=""):
        line = [
            part.rjust(width) if to_right else part.ljust(width)
            for part, width, to_right in zip(parts, widths, right, strict=True)
        ]
        yield style.format("  ".join(line).rstrip())


def _text(cell: Cell, *, grouped: bool) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}" if grouped else str(cell)
    return printable(cell)


def note(message: str) -> None:
    """Print a message on standard error, so that it never mixes with the output."""
    print(f"millstream: {printable(message, lines=True)}", file=sys.stderr)


def nobody_reads() -> bool:
    """True if standard output is a pipe whose reader has gone, such as a finished `| head`."""
    gone = select.poll()
    gone.register(sys.stdout.fileno(), 0)  # only POLLERR and POLLHUP
    return not sys.stdout.isatty() and bool(gone.poll(0))


def ask(question: str, *, yes: bool, option: str = "--yes") -> None:
    """Return only if the user confirms. Without a terminal, raises ConfigError unless ``yes`` was passed."""
    from millstream.core.errors import ConfigError

    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask on: pass {option} to confirm.")
    typer.confirm(question, abort=True, err=True)
