"""How the demo looks: a panel that moves in a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millstream.examples.fraud.judge import Score

if TYPE_CHECKING:
    from rich.console import RenderableType

    from millstream.cli.demo_scene import Seen

_BARS = " ▁▂▃▄▅▆▇█"
_RULES = {
    "burst": "yellow",
    "card_testing": "magenta",
    "two_countries": "cyan",
    "unusual_amount": "red",
}


@dataclass(slots=True)
class Picture:
    """All that the panel shows, at one moment."""

    phase: str = "starting"
    steps: list[tuple[str, float | None]] = field(default_factory=list)  # what was done, and its seconds
    step_began: float = 0.0
    address: str = ""
    console: str = ""  # where it is, or why there is none
    sent: int = 0
    processed: int = 0
    alerts: int = 0
    rejected: int = 0
    blocked: int = 0
    lag: int | None = None
    watermark: datetime | None = None
    batch_ms: int | None = None
    p50: int | None = None
    p95: int | None = None
    rates: deque[int] = field(default_factory=lambda: deque(maxlen=16))  # processed in each half second
    recent: list[Seen] = field(default_factory=list)
    live: float = 0.0  # seconds since the pipeline is up
    wanted: float = 60.0


class Panel:
    """Draws pictures in place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._began = time.monotonic()
        self._live = Live(console=Console(), auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, picture: Picture) -> None:
        self._live.update(_panel(picture, time.monotonic() - self._began), refresh=True)


class Lines:
    """The same as lines of text: a step when it is done, figures every two seconds."""

    def __init__(self) -> None:
        self._told = 0
        self._phase = ""
        self._console = ""
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, picture: Picture) -> None:
        if picture.console != self._console:
            self._console = picture.console
            print(f"console: {picture.console}", flush=True)
        for what, seconds in picture.steps[self._told :]:
            if seconds is None:
                break
            self._told += 1
            print(f"{what} ({seconds:.1f} s)", flush=True)
        if picture.phase != self._phase:
            self._phase = picture.phase
            print(f"{picture.phase} ...", flush=True)
        if picture.live and time.monotonic() >= self._next:
            self._next = time.monotonic() + 2
            latency = f"{picture.p50 or 0:,} / {picture.p95 or 0:,} ms"
            print(
                f"{picture.live:4.0f} s  events {picture.processed:,}  alerts {picture.alerts:,}  blocked"
                f" {picture.blocked:,}  lag {picture.lag or 0:,}  latency p50/p95 {latency}",
                flush=True,
            )


def display() -> Panel | Lines:
    return Panel() if sys.stdout.isatty() else Lines()


def _panel(picture: Picture, elapsed: float) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.panel import Panel as Frame
    from rich.table import Table

    body: list[Any] = [_steps(picture, elapsed)]
    if picture.sent:
        sides = Table.grid(expand=True, padding=(0, 3))
        sides.add_column(min_width=48)
        sides.add_column(ratio=1)
        sides.add_row(_figures(picture), _alerts(picture))
        body += ["", sides]
    title = f"[bold]millstream[/] demo  [dim]card payments  →  Spark  →  alerts[/]  {elapsed:3.0f} s"
    return Frame(Group(*body), title=title, border_style="blue", box=box.ROUNDED, padding=(1, 2))


def _steps(picture: Picture, elapsed: float) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    lines: list[Any] = []
    for what, seconds in picture.steps:
        if seconds is None:
            took = time.monotonic() - picture.step_began
            lines.append(Text.from_markup(f"[yellow]{_turning(elapsed)}[/] {what} [dim]{took:.0f} s[/]"))
        else:
            lines.append(Text.from_markup(f"[green]✓[/] {what} [dim]{seconds:.1f} s[/]"))
    if picture.console:
        lines.append(
            Text.assemble(("→", "cyan"), " console ", (picture.console, "bold cyan"), overflow="fold")
        )
    if picture.live:
        row = Table.grid(padding=(0, 1))
        done = min(picture.live, picture.wanted)
        left = max(0, round(picture.wanted - picture.live))
        row.add_row(
            Text.from_markup(f"[yellow]{_turning(elapsed)}[/] {picture.phase}"),
            ProgressBar(total=picture.wanted, completed=done, width=34),
            Text(f"{left} s to go" if left else "", style="dim"),
        )
        lines.append(row)
    return Group(*lines)


def _turning(elapsed: float) -> str:
    return "◐◓◑◒"[int(elapsed * 6) % 4]


def _figures(picture: Picture) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_row("payments in", f"{picture.sent:,}", "")
    table.add_row("processed", f"{picture.processed:,}", Text(_spark_line(picture.rates), style="blue"))
    table.add_row("alerts out", Text(f"{picture.alerts:,}", style="bold yellow"), "")
    table.add_row("cards blocked", Text(f"{picture.blocked:,}", style="bold red"), "")
    table.add_row("rejected", f"{picture.rejected:,}", Text("did not parse", style="dim"))
    table.add_row("lag", "-" if picture.lag is None else f"{picture.lag:,}", Text("records", style="dim"))
    watermark = "-" if picture.watermark is None else f"{picture.watermark:%H:%M:%S}"
    table.add_row("watermark", watermark, Text("event time, UTC", style="dim"))
    table.add_row("batch", "-" if picture.batch_ms is None else f"{picture.batch_ms:,} ms", "")
    latency = "-" if picture.p50 is None else f"{picture.p50:,} ms"
    worse = "" if picture.p95 is None else f"p95 {picture.p95:,} ms"
    table.add_row("payment to alert", Text(latency, style="bold green"), Text(worse, style="dim"))
    return table


def _alerts(picture: Picture) -> RenderableType:
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


def _spark_line(values: deque[int]) -> str:
    top = max(values, default=0) or 1
    return "".join(_BARS[min(8, round(8 * value / top))] for value in list(values)[-16:])


def summary(scores: list[Score], picture: Picture) -> None:
    """What was found against what was planted."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("fraud")
    for title in ("planted", "found", "recall", "cards alerted", "precision"):
        table.add_column(title, justify="right")
    for score in scores:
        style = "bold" if score.kind == "all" else None
        table.add_row(
            score.kind.replace("_", " "),
            str(score.planted),
            str(score.found),
            _share(score.recall),
            str(score.alerted),
            _share(score.precision),
            style=style,
        )
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
    console.print(table)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
