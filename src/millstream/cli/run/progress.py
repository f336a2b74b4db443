"""Prints what each batch of ``millstream run`` did: a line for people, or JSON for programs."""

from __future__ import annotations

import json
import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from millstream.pipeline.run.reporting.progress import BatchProgress


class ProgressFormat(StrEnum):
    LINE = "line"
    JSON = "json"


ProgressOption = Annotated[
    ProgressFormat,
    typer.Option(
        "--progress",
        metavar="line|json",
        help="What to print after each batch: a line, or JSON with all figures of every operator, sink "
        "and step. With json, everything else goes to standard error.",
    ),
]


class Printer:
    """Prints every batch that read or wrote something."""

    def __init__(self, shown: ProgressFormat = ProgressFormat.LINE) -> None:
        self._shown = shown
        self._out = sys.stdout  # kept, because sys.stdout is redirected to standard error later (JSON)

    def show(self, progress: BatchProgress) -> None:
        if not progress.rows_in and not any(progress.rows_out.values()):
            return
        if self._shown is ProgressFormat.JSON:
            print(json.dumps(progress.as_json(), ensure_ascii=False), file=self._out, flush=True)
        else:
            width = shutil.get_terminal_size().columns if self._out.isatty() else None
            print(progress.line(width), file=self._out, flush=True)
