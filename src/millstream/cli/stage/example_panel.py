"""Draws an example while it runs, and prints its results at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.cli.stage import panel
from millstream.examples.example import Example, Score

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_MOST_ROWS = 8  # of the view, printed at the end
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ](\d\d:\d\d:\d\d)")


@dataclass(slots=True)
class ExamplePicture(panel.Picture):
    """Everything the panel shows at one moment."""

    planted: int = 0
    results: dict[str, int] = field(default_factory=dict)  # number of results by topic
    recent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def display(example: Example) -> panel.Screen[ExamplePicture]:
    return panel.display(partial(_panel, example), _line)


def _line(picture: ExamplePicture) -> str:
    results = "  ".join(f"{topic} {number:,}" for topic, number in picture.results.items())
    return f"events {picture.sent:,}  processed {picture.processed:,}  {results}"


def _panel(example: Example, picture: ExamplePicture, elapsed: float) -> RenderableType:
    sides = panel.sides(_figures(picture), _results(example, picture)) if picture.sent else None
    return panel.framed(f"example {example.name}", example.title, picture, elapsed, sides)


def _figures(picture: ExamplePicture) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row("events in", f"{picture.sent:,}", "")
    if picture.batch_ms is None:
        table.add_row("processed", "-", Text("Spark has not done a batch yet", style="dim"))
        return table
    table.add_row("processed", f"{picture.processed:,}", Text(panel.spark_line(picture.rates), style="blue"))
    table.add_row("planted so far", f"{picture.planted:,}", Text("things to find", style="dim"))
    for topic, number in picture.results.items():
        table.add_row(f"{topic} out", Text(f"{number:,}", style="bold yellow"), "")
    if picture.rejected:
        table.add_row("rejected", f"{picture.rejected:,}", Text("did not parse", style="dim"))
    table.add_row("lag", "-" if picture.lag is None else f"{picture.lag:,}", Text("records", style="dim"))
    watermark = "-" if picture.watermark is None else f"{picture.watermark:%H:%M:%S}"
    table.add_row("watermark", watermark, Text("event time, UTC", style="dim"))
    table.add_row("batch", f"{picture.batch_ms:,} ms", "")
    return table


def _results(example: Example, picture: ExamplePicture) -> RenderableType:
    """The latest results of one topic: the one that the newest result came from."""
    from rich.text import Text

    topic = picture.recent[0][0] if picture.recent else next(iter(example.results))
    columns = example.results[topic]
    table = _table(columns)
    for _, row in [entry for entry in picture.recent if entry[0] == topic][:8]:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    if not picture.recent:
        table.add_row(Text("nothing yet", style="dim"))
    return table


def _table(columns: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=True)
    return table


def _cell(value: Any) -> str:
    """A value for people: a timestamp as the time of day, a fraction with two digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    found = _TIME.match(str(value))
    return found[1] if found else str(value)


def ending(
    example: Example,
    scores: Sequence[Score],
    picture: ExamplePicture,
    view: tuple[Sequence[str], Sequence[Sequence[Any]]],
    *,
    good: bool,
) -> None:
    """Print the view, what was found compared with what was planted, and what to try next."""
    from rich.console import Console

    console = Console(highlight=False)
    columns, rows = view
    console.print()
    console.print(f"The view [bold]{example.view}[/], {len(rows):,} rows:")
    table = _table(columns)
    for row in rows[:_MOST_ROWS]:
        table.add_row(*map(_cell, row))
    console.print(table)
    results = ", ".join(f"[bold]{number:,}[/] {topic}" for topic, number in picture.results.items())
    console.print(f"[bold]{picture.sent:,}[/] events, {results}. What was found of what was planted:")
    console.print(panel.scores_table(scores, example.name, "given"))
    if good:
        console.print(
            "[green]✓[/] That is what was planted." if _whole(scores) else "[green]✓[/] Good enough."
        )
    else:
        console.print(
            f"[red]✗[/] Too little was found, or too much: at least {example.recall:.0%} of what was planted"
            f" should be found, and {example.precision:.0%} of the results should be right."
        )
    print("Where to look next:")
    for command, meaning in (
        (f"millstream example show {example.name}", "the pipeline you have just seen"),
        (
            f"millstream new my-{example.name} --from {example.name}",
            "a project of your own that begins as it",
        ),
    ):
        print(f"  {command}\n      {meaning}")


def _whole(scores: Sequence[Score]) -> bool:
    return all(score.found == score.planted and score.right == score.given for score in scores)
