"""What commands print: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", metavar="table|json", help="A table for people, or JSON for programs.")
]

Cell = str | int | None


class Column(NamedTuple):
    """A column. ``prose`` may be wrapped where the terminal is narrow; everything else stays whole."""

    title: str
    prose: bool = False


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_table(columns: Sequence[str | Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Rows under their titles. Whole numbers stand to the right, None is a dash."""
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    right = [
        any(isinstance(row[at], int) for row in rows) and not any(isinstance(row[at], str) for row in rows)
        for at in range(len(heads))
    ]
    if sys.stdout.isatty():
        _for_people(heads, rows, right)
    else:
        _for_pipes(heads, rows, right)


def _for_people(heads: Sequence[Column], rows: Sequence[Sequence[Cell]], right: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", padding=(0, 1))
    for head, to_right in zip(heads, right, strict=True):
        table.add_column(
            head.title, justify="right" if to_right else "left", overflow="fold", no_wrap=not head.prose
        )
    for row in rows:
        table.add_row(*[Text(_text(cell, grouped=True)) for cell in row])
    Console(highlight=False).print(table)


def _for_pipes(heads: Sequence[Column], rows: Sequence[Sequence[Cell]], right: Sequence[bool]) -> None:
    lines = [[head.title for head in heads], *[[_text(cell, grouped=False) for cell in row] for row in rows]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    for line in lines:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _text(cell: Cell, *, grouped: bool) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}" if grouped else str(cell)
    return cell


def note(message: str) -> None:
    """Something to know beside the output; never mixed into it."""
    print(f"millstream: {message}", file=sys.stderr)


def bytes_text(size: int) -> str:
    """A size as people say it: ``1.5 MB``."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{size} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"


def duration_text(milliseconds: int) -> str:
    """A time span in its two largest units: ``3 h 12 min``."""
    if milliseconds < 1000:
        return f"{max(0, milliseconds)} ms"
    seconds = milliseconds // 1000
    if seconds < 60:
        return f"{milliseconds / 1000:.3g} s"
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)


def count(number: int, noun: str) -> str:
    """``1 record``, ``12,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ask(question: str, *, yes: bool, option: str = "--yes") -> None:
    """Go on only if the user says so; without a terminal to ask at, only if it was said beforehand."""
    from millstream.errors import ConfigError

    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask at: pass {option} if that is meant.")
    typer.confirm(question, abort=True, err=True)
