"""Draws what a stage shows: a live panel in a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from millstream.examples.example import Score

_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Picture:
    """What every panel shows at one moment."""

    phase: str = "starting"
    steps: list[tuple[str, float | None]] = field(default_factory=list)  # with seconds, None if under way
    step_began: float = 0.0
    address: str = ""
    console: str = ""  # its address, or why there is none
    sent: int = 0
    processed: int = 0
    rejected: int = 0
    lag: int | None = None
    watermark: datetime | None = None
    batch_ms: int | None = None
    rates: deque[int] = field(default_factory=lambda: deque(maxlen=16))  # records processed per half second
    live: float = 0.0  # seconds since the play began
    wanted: float = 60.0


P = TypeVar("P", bound=Picture)
Shown = TypeVar("Shown", bound=Picture, contravariant=True)


class Screen(Protocol[Shown]):
    """Shows pictures."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, picture: Shown) -> None: ...


class Panel(Generic[P]):
    """Draws each picture in place of the last one."""

    def __init__(self, draw: Callable[[P, float], RenderableType]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._draw = draw
        self._began = time.monotonic()
        self._live = Live(console=Console(), auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, picture: P) -> None:
        self._live.update(self._draw(picture, time.monotonic() - self._began), refresh=True)


class Lines(Generic[P]):
    """Prints pictures as lines of text: each step when it is done, figures every two seconds."""

    def __init__(self, line: Callable[[P], str]) -> None:
        self._line = line
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

    def show(self, picture: P) -> None:
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
            print(f"{picture.live:4.0f} s  {self._line(picture)}", flush=True)


def display(draw: Callable[[P, float], RenderableType], line: Callable[[P], str]) -> Screen[P]:
    return Panel(draw) if sys.stdout.isatty() else Lines(line)


def framed(
    title: str, way: str, picture: Picture, elapsed: float, body: RenderableType | None
) -> RenderableType:
    """The whole panel: the steps so far, and ``body`` below them, if there is one yet."""
    from rich import box
    from rich.console import Group
    from rich.panel import Panel as Frame

    parts: list[Any] = [_steps(picture, elapsed)]
    if body is not None:
        parts += ["", body]
    heading = f"[bold]millstream[/] {title}  [dim]{way}[/]  {elapsed:3.0f} s"
    return Frame(Group(*parts), title=heading, border_style="blue", box=box.ROUNDED, padding=(1, 2))


def sides(figures: RenderableType, results: RenderableType) -> RenderableType:
    from rich.table import Table

    table = Table.grid(expand=True, padding=(0, 3))
    table.add_column(min_width=48)
    table.add_column(ratio=1)
    table.add_row(figures, results)
    return table


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


def spark_line(values: Iterable[int]) -> str:
    shown = list(values)[-16:]
    top = max(shown, default=0) or 1
    return "".join(_BARS[min(8, round(8 * value / top))] for value in shown)


def scores_table(scores: Iterable[Score], kind: str, given: str) -> Table:
    """What was found compared with what was planted, with one row for each kind."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column(kind)
    for title in ("planted", "found", "recall", given, "precision"):
        table.add_column(title, justify="right")
    for score in scores:
        table.add_row(
            score.kind.replace("_", " "),
            str(score.planted),
            str(score.found),
            _share(score.recall),
            str(score.given),
            _share(score.precision),
            style="bold" if score.kind == "all" else None,
        )
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
