"""Draws the demo: a live panel in a terminal, plain lines everywhere else."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from millstream.cli.stage import panel
from millstream.examples.example import Score

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millstream.cli.stage.demo_scene import Seen

_RULES = {
    "burst": "yellow",
    "card_testing": "magenta",
    "two_countries": "cyan",
    "unusual_amount": "red",
}


@dataclass(slots=True)
class DemoPicture(panel.Picture):
    """Everything the panel shows at one moment."""

    alerts: int = 0
    blocked: int = 0
    p50: int | None = None
    p95: int | None = None
    recent: list[Seen] = field(default_factory=list)


def display() -> panel.Screen[DemoPicture]:
    return panel.display(_panel, _line)


def _line(picture: DemoPicture) -> str:
    return (
        f"events {picture.processed:,}  alerts {picture.alerts:,}  blocked {picture.blocked:,}"
        f"  lag {picture.lag or 0:,}  latency p50/p95 {picture.p50 or 0:,} / {picture.p95 or 0:,} ms"
    )


def _panel(picture: DemoPicture, elapsed: float) -> RenderableType:
    sides = panel.sides(_figures(picture), _alerts(picture)) if picture.sent else None
    return panel.framed("demo", "card payments  →  Spark  →  alerts", picture, elapsed, sides)


def _figures(picture: DemoPicture) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row("payments in", f"{picture.sent:,}", "")
    if picture.batch_ms is None:
        table.add_row("processed", "-", Text("Spark has not done a batch yet", style="dim"))
        return table
    table.add_row("processed", f"{picture.processed:,}", Text(panel.spark_line(picture.rates), style="blue"))
    table.add_row("alerts out", Text(f"{picture.alerts:,}", style="bold yellow"), "")
    table.add_row("cards blocked", Text(f"{picture.blocked:,}", style="bold red"), "")
    table.add_row("rejected", f"{picture.rejected:,}", Text("did not parse", style="dim"))
    table.add_row("lag", "-" if picture.lag is None else f"{picture.lag:,}", Text("records", style="dim"))
    watermark = "-" if picture.watermark is None else f"{picture.watermark:%H:%M:%S}"
    table.add_row("watermark", watermark, Text("event time, UTC", style="dim"))
    table.add_row("batch", f"{picture.batch_ms:,} ms", "")
    latency = "-" if picture.p50 is None else f"{picture.p50:,} ms"
    worse = "" if picture.p95 is None else f"p95 {picture.p95:,} ms"
    table.add_row("payment to alert", Text(latency, style="bold green"), Text(worse, style="dim"))
    return table


def _alerts(picture: DemoPicture) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", expand=True)
    table.add_column("paid", no_wrap=True, style="dim")
    table.add_column("card", no_wrap=True)
    table.add_column("rule", no_wrap=True)
    table.add_column("spent", justify="right", no_wrap=True)
    for seen in picture.recent:
        paid = datetime.fromtimestamp(seen.alert.last_paid_ms / 1000).strftime("%H:%M:%S")  # noqa: DTZ006
        rule = Text(seen.alert.rule.replace("_", " "), style=_RULES.get(seen.alert.rule, ""))
        table.add_row(paid, f"•••• {seen.alert.card[-4:]}", rule, f"{seen.spent:,.0f} €")
    if not picture.recent:
        table.add_row("", Text("no alert yet", style="dim"), "", "")
    return table


def summary(scores: list[Score], picture: DemoPicture) -> None:
    """Print what was found, compared with what was planted."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print()
    console.print(
        f"[bold]{picture.processed:,}[/] payments, [bold]{picture.alerts:,}[/] alerts,"
        f" [bold]{picture.blocked:,}[/] cards blocked, {picture.rejected:,} records rejected"
        " (they are in [bold]payments.rejected[/])"
    )
    if picture.p50 is not None:
        console.print(
            f"from payment to alert: half within {picture.p50:,} ms, 95 % within {picture.p95:,} ms"
        )
    console.print(panel.scores_table(scores, "fraud", "cards alerted"))
