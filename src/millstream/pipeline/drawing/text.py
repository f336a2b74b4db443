"""Draws a topology with box characters, for a terminal."""

from __future__ import annotations

import textwrap

from millstream.pipeline.drawing.graph import Box, Graph
from millstream.pipeline.drawing.layout import Spot, layout

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LINES = {
    _UP | _DOWN: "│", _LEFT | _RIGHT: "─", _DOWN | _RIGHT: "┌", _DOWN | _LEFT: "┐", _UP | _RIGHT: "└",
    _UP | _LEFT: "┘", _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤", _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _LEFT | _RIGHT: "┴", 15: "┼", _UP: "│", _DOWN: "│", _LEFT: "─", _RIGHT: "─",
}  # fmt: skip
_CORNERS = {"topic": "╔═╗║╚╝", "view": "╒═╕│╘╛", "union": "╭─╮│╰╯", "channel": "╭─╮│╰╯", "rejected": "╭─╮│╰╯"}
_TEXT_WIDTH = 28


def draw_text(graph: Graph) -> str:
    """Boxes from top to bottom. Topics have double lines, views a double top, channels round corners."""
    contents = {box.key: _content(box) for box in graph.boxes}
    widths = {key: max(len(line) for line in lines) + 4 for key, lines in contents.items()}
    placed = layout({key: float(width) for key, width in widths.items()}, graph.arrows, gap=2)
    kinds = {box.key: box.kind for box in graph.boxes}
    canvas: list[list[str]] = []
    columns = int(placed.width) + 4
    for index, layer in enumerate(placed.layers):
        height = max((len(contents[spot.key]) + 2 for spot in layer if spot.key is not None), default=1)
        rows = [[" "] * columns for _ in range(height)]
        for spot in layer:
            _draw_spot(rows, spot, contents, kinds)
        canvas.extend(rows)
        if index + 1 < len(placed.layers):
            canvas.extend(_channel(layer, columns))
    return "\n".join("".join(row).rstrip() for row in canvas)


def _content(box: Box) -> list[str]:
    lines = [box.title]
    for line in box.lines:
        lines.extend(textwrap.wrap(line, _TEXT_WIDTH, subsequent_indent="  ") or [""])
    return lines


def _x(spot: Spot) -> int:
    return round(spot.centre)


def _draw_spot(
    rows: list[list[str]], spot: Spot, contents: dict[str, list[str]], kinds: dict[str, str]
) -> None:
    if spot.key is None:
        for row in rows:
            row[_x(spot)] = "│"
        return
    lines = contents[spot.key]
    corners = _CORNERS.get(kinds[spot.key], "┌─┐│└┘")
    width = int(spot.width)
    left = _x(spot) - width // 2
    text = [corners[0] + corners[1] * (width - 2) + corners[2]]
    text.extend(f"{corners[3]} {line.ljust(width - 4)} {corners[3]}" for line in lines)
    text.append(corners[4] + corners[1] * (width - 2) + corners[5])
    for row, line in zip(rows, text, strict=False):
        row[left : left + width] = list(line)
    for row in rows[
        len(text) :
    ]:  # below a box that is shorter than the layer, its line continues to the foot
        if spot.below:
            row[_x(spot)] = "│"


def _channel(layer: tuple[Spot, ...], columns: int) -> list[list[str]]:
    """The rows between two layers, where arrows run sideways. Lines that would collide get their own rows."""
    tracks = _tracks([spot for spot in layer if any(_x(below) != _x(spot) for below in spot.below)])
    height = max(tracks.values(), default=-1) + 1
    bits = [[0] * columns for _ in range(height + 2)]
    crossing = [[False] * columns for _ in range(height + 2)]
    for spot in layer:
        row = tracks.get(id(spot), 0) + 1 if id(spot) in tracks else None
        for below in spot.below:
            _line(bits, crossing, _x(spot), _x(below), row)
    rows = [
        ["│" if crossing[y][x] else _LINES.get(bits[y][x], " ") for x in range(columns)]
        for y in range(height + 2)
    ]
    for spot in layer:
        for below in spot.below:
            if below.key is not None:
                rows[-1][_x(below)] = "▼"
    return rows


def _tracks(spots: list[Spot]) -> dict[int, int]:
    """A row for every spot's sideways line, so that no two lines overlap.

    Where the arrow of one spot comes down in the column in which another spot starts, the other turns first.
    """
    spans = {id(s): (min(_x(s), *map(_x, s.below)), max(_x(s), *map(_x, s.below))) for s in spots}
    rows: dict[int, int] = {}
    waiting = list(spots)
    while waiting:
        free = [spot for spot in waiting if not any(_turns_first(other, spot) for other in waiting)]
        spot = (free or waiting)[0]
        waiting.remove(spot)
        taken = {rows[id(o)] for o in spots if id(o) in rows and _collide(spot, o, spans)}
        above = [rows[id(other)] for other in spots if id(other) in rows and _turns_first(other, spot)]
        floor = max(above, default=-1) + 1
        rows[id(spot)] = next(row for row in range(floor, floor + len(spots) + 1) if row not in taken)
    return rows


def _turns_first(one: Spot, other: Spot) -> bool:
    return one is not other and _x(one) in map(_x, other.below)


def _collide(one: Spot, other: Spot, spans: dict[int, tuple[int, int]]) -> bool:
    """True if two sideways lines can't share a row. They can if both lead to one box and nowhere else, or
    if they only meet end to end above a box that both lead to."""
    if {id(spot) for spot in one.below} == {id(spot) for spot in other.below}:
        return len({id(spot) for spot in one.below}) > 1
    (low, high), (other_low, other_high) = spans[id(one)], spans[id(other)]
    if low == other_high or high == other_low:
        common = set(map(_x, one.below)) & set(map(_x, other.below))
        return (low if low == other_high else high) not in common
    return low <= other_high and other_low <= high


def _line(bits: list[list[int]], crossing: list[list[bool]], x: int, to: int, row: int | None) -> None:
    last = len(bits) - 1
    if row is None or x == to:
        for y in range(last + 1):
            _add(bits, crossing, y, x, _UP | _DOWN)
        return
    for y in range(row):
        _add(bits, crossing, y, x, _UP | _DOWN)
    _add(bits, crossing, row, x, _UP | (_RIGHT if to > x else _LEFT))
    for column in range(min(x, to) + 1, max(x, to)):
        _add(bits, crossing, row, column, _LEFT | _RIGHT)
    _add(bits, crossing, row, to, _DOWN | (_LEFT if to > x else _RIGHT))
    for y in range(row + 1, last + 1):
        _add(bits, crossing, y, to, _UP | _DOWN)


def _add(bits: list[list[int]], crossing: list[list[bool]], y: int, x: int, new: int) -> None:
    """Adds a line to a cell. Lines that only cross don't touch: the vertical one is drawn on top."""
    old = bits[y][x]
    if {old, new} == {_UP | _DOWN, _LEFT | _RIGHT}:
        crossing[y][x] = True
    elif old:
        crossing[y][x] = False
    bits[y][x] = old | new
