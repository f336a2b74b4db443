"""Draws a topology as SVG: a picture that needs no other program, for light and dark mode."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from millstream.pipeline.drawing.graph import Box, Graph
from millstream.pipeline.drawing.layout import Spot, layout

_CHARACTER, _LINE, _PADDING, _GAP, _BETWEEN, _MARGIN = 7.3, 17.0, 12.0, 28.0, 52.0, 16.0
_TEXT_WIDTH, _LIVE_WIDTH = 40, 27
_LIVE_LINES = 5
_NOTE_WIDTH = 24  # at least, so that a box does not change its size with every digit
# Every rule is for this picture alone: a notebook puts it in a page with other pictures.
_STYLE = """
  .millstream text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #445; }
  .millstream text.title { font-weight: 700; fill: #112; }
  .millstream rect { fill: #f5f7fb; stroke: #667; stroke-width: 1.2; }
  .millstream .topic rect { fill: #e4f0ff; stroke: #2b6cb0; }
  .millstream .view rect { fill: #e6f7ea; stroke: #2f855a; }
  .millstream .window rect { fill: #fff3dc; stroke: #b7791f; }
  .millstream .rejected rect { fill: #fde8e8; stroke: #c53030; }
  .millstream path.arrow { fill: none; stroke: #667; stroke-width: 1.4; }
  .millstream marker path { fill: #667; }
  @media (prefers-color-scheme: dark) {
    .millstream text { fill: #bcd; } .millstream text.title { fill: #fff; }
    .millstream rect { fill: #1d2430; stroke: #89a; }
    .millstream .topic rect { fill: #16304f; stroke: #63a4ff; }
    .millstream .view rect { fill: #173a26; stroke: #68d391; }
    .millstream .window rect { fill: #40310f; stroke: #f6ad55; }
    .millstream .rejected rect { fill: #461a1a; stroke: #fc8181; }
    .millstream path.arrow { stroke: #9ab; } .millstream marker path { fill: #9ab; }
  }"""


@dataclass(frozen=True, slots=True)
class Live:
    """What a page adds to the picture of a running job. Boxes become links; the page has the style.

    ``labels`` are texts on arrows, ``notes`` texts in boxes with their classes, ``marks`` boxes' classes.
    """

    links: Mapping[str, str]
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)


_SMALL = 620  # pixels: a narrower picture is shown at its own size, neither stretched nor shrunk


def draw_svg(graph: Graph, title: str, live: Live | None = None) -> str:
    """A picture by itself or, with ``live``, one that is part of a page."""
    contents = {box.key: _content(box, live) for box in graph.boxes}
    widths = {key: max(_width(line) for line in lines) for key, lines in contents.items()}
    placed = layout(widths, graph.arrows, gap=_GAP)
    boxes = {box.key: box for box in graph.boxes}
    tops: list[float] = []
    y = _MARGIN
    heights = []
    for layer in placed.layers:
        height = max((_height(contents[spot.key]) for spot in layer if spot.key is not None), default=0.0)
        tops.append(y)
        heights.append(height)
        y += height + _BETWEEN
    total = (placed.width + 2 * _MARGIN, y - _BETWEEN + _MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]:.0f} {total[1]:.0f}" '
        f'width="{total[0]:.0f}" height="{total[1]:.0f}" '
        + (
            'class="millstream" role="img">'
            if live is None
            else f'class="graph{" small" * (total[0] < _SMALL)}" role="group" aria-label={quoteattr(title)}>'
        ),
        f"<title>{escape(title)}</title>\n<style>{_STYLE}\n</style>" if live is None else "",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>',
    ]
    labels: list[str] = []  # drawn after all arrows, which would otherwise cross them out
    for layer in placed.layers:
        for spot in layer:
            if spot.key is not None:
                drawn = [_arrow(spot, below, tops, heights, contents, live) for below in spot.below]
                parts += [arrow for arrow, _ in drawn]
                labels += [label for _, label in drawn]
    for layer in placed.layers:
        for spot in layer:
            if spot.key is not None:
                parts += [_box(boxes[spot.key], contents[spot.key], spot, tops[spot.layer], live)]
    parts += [*labels, "</svg>"]
    return "\n".join(parts)


Line = tuple[str, str]  # text and class


def _content(box: Box, live: Live | None) -> list[Line]:
    width = _TEXT_WIDTH if live is None else _LIVE_WIDTH
    lines = [(line, "title") for line in (textwrap.wrap(box.title, width) if live else [box.title])]
    about = [line for about in box.lines for line in textwrap.wrap(about, width) or [""]]
    if live is not None and len(about) > _LIVE_LINES:  # the page shows the full text beside the picture
        about = [*about[: _LIVE_LINES - 1], "…"]
    lines += [(line, "about") for line in about]
    return (
        lines
        if live is None
        else [*lines, *((text, f"note {kind}") for text, kind in live.notes.get(box.key, ()))]
    )


def _width(line: Line) -> float:
    text, kind = line
    return max(len(text), _NOTE_WIDTH if kind.startswith("note") else 0) * _CHARACTER + 2 * _PADDING


def _height(lines: list[Line]) -> float:
    return len(lines) * _LINE + 2 * _PADDING - 4


def _box(box: Box, lines: list[Line], spot: Spot, top: float, live: Live | None) -> str:
    left = spot.centre - spot.width / 2 + _MARGIN
    radius = {"topic": 3, "view": 3, "channel": 16, "rejected": 16, "union": 16}.get(box.kind, 7)
    text = [
        f'<text class="{kind}" x="{left + _PADDING:.1f}"'
        f' y="{top + _PADDING + 10 + index * _LINE:.1f}">{escape(line)}</text>'
        for index, (line, kind) in enumerate(lines)
    ]
    frame = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{spot.width:.1f}" height="{_height(lines):.1f}"'
        f' rx="{radius}"/>'
    )
    if live is None:
        return f'<g class="{box.kind}">{frame}{"".join(text)}</g>'
    mark = live.marks.get(box.key, "")
    inside = f'<g class="box {box.kind} {mark}">{frame}{"".join(text)}</g>'
    return f"<a href={quoteattr(live.links[box.key])}>{inside}</a>"


def _arrow(
    start: Spot,
    following: Spot,
    tops: list[float],
    heights: list[float],
    contents: dict[str, list[Line]],
    live: Live | None,
) -> tuple[str, str]:
    """An arrow from the foot of a box to the head of the next one, through the bends of the layers between;
    and its label. It runs straight down to the foot of its layer: a bend there could cross a taller box."""
    foot = tops[start.layer] + _height(contents[str(start.key)])
    points = [(start.centre + _MARGIN, tops[start.layer] + heights[start.layer])]
    spot = following
    while spot.key is None:
        points.append((spot.centre + _MARGIN, tops[spot.layer]))
        spot = spot.below[0]
    points.append((spot.centre + _MARGIN, tops[spot.layer] - 1))
    path = f"M{points[0][0]:.1f} {foot:.1f}V{points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        middle = (y + to_y) / 2
        path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
    arrow = f'<path class="arrow" d="{path}" marker-end="url(#head)"/>'
    label = None if live is None else live.labels.get((str(start.key), str(spot.key)))
    if label is None:
        return arrow, ""
    (x, y), (to_x, to_y) = points[-2:]  # the arrow's one label is near the box that it leads to
    place = f'x="{(x + to_x) / 2:.1f}" y="{(y + to_y) / 2 + 4:.1f}"'
    return arrow, f'<text class="rate" {place}>{escape(label)}</text>'
