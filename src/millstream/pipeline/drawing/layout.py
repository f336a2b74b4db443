"""Places the boxes and arrows of a graph in layers, top to bottom, for the text and the SVG drawing.

1. Every box goes into a layer below all boxes that it comes from.
2. An arrow that crosses several layers gets a bend in each of them.
3. The boxes of a layer are ordered so that few arrows cross (barycentres, a few sweeps).
4. Each box moves under its neighbours as far as the others of its layer allow (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Spot:
    """A position in a layer: a box, or the bend of a long arrow (``key`` is None)."""

    key: str | None
    width: float
    layer: int
    centre: float = 0.0
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    layers: tuple[tuple[Spot, ...], ...]
    width: float


def layout(widths: Mapping[str, float], arrows: Sequence[tuple[str, str]], gap: float) -> Layout:
    """Place boxes of these widths, at least ``gap`` apart. An arrow that closes a cycle would point upwards,
    so it is left out of the layers and of the layout."""
    forward = _without_cycles(list(widths), arrows)
    depth = _depths(list(widths), forward)
    spots = {key: Spot(key, width, depth[key]) for key, width in widths.items()}
    layers: list[list[Spot]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for spot in spots.values():
        layers[spot.layer].append(spot)
    for tail, head in forward:
        upper = spots[tail]
        for level in range(upper.layer + 1, spots[head].layer):
            bend = Spot(None, 1, level)
            layers[level].append(bend)
            upper.below.append(bend)
            bend.above.append(upper)
            upper = bend
        upper.below.append(spots[head])
        spots[head].above.append(upper)
    _order(layers)
    _place(layers, gap)
    left = min((spot.centre - spot.width / 2 for layer in layers for spot in layer), default=0)
    for layer in layers:
        for spot in layer:
            spot.centre -= left
    right = max((spot.centre + spot.width / 2 for layer in layers for spot in layer), default=0)
    return Layout(tuple(tuple(layer) for layer in layers), right)


def _without_cycles(keys: list[str], arrows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows, except those that lead back to a box that the walk came through (feedback through a
    topic)."""
    following: dict[str, list[str]] = {key: [] for key in keys}
    for tail, head in arrows:
        following[tail].append(head)
    kept: list[tuple[str, str]] = []
    state: dict[str, int] = {}

    def walk(key: str) -> None:
        state[key] = 1
        for head in following[key]:
            if state.get(head) == 1:
                continue
            kept.append((key, head))
            if head not in state:
                walk(head)
        state[key] = 2

    for key in keys:
        if key not in state:
            walk(key)
    return kept


def _depths(keys: list[str], arrows: list[tuple[str, str]]) -> dict[str, int]:
    depth = dict.fromkeys(keys, 0)
    for _ in keys:
        for tail, head in arrows:
            depth[head] = max(depth[head], depth[tail] + 1)
    return depth


def _order(layers: list[list[Spot]]) -> None:
    for sweep in range(8):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            place = {id(spot): index for other in layers for index, spot in enumerate(other)}

            def barycentre(spot: Spot, place: dict[int, int] = place, down: bool = downwards) -> float:
                near = spot.above if down else spot.below
                return sum(place[id(n)] for n in near) / len(near) if near else place[id(spot)]

            layer.sort(key=barycentre)


def _place(layers: list[list[Spot]], gap: float) -> None:
    for layer in layers:
        position = 0.0
        for spot in layer:
            spot.centre = position + spot.width / 2
            position += spot.width + gap
    for sweep in range(6):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            wanted = []
            for spot in layer:
                near = (spot.above if downwards else spot.below) or (spot.below if downwards else spot.above)
                wanted.append(sum(n.centre for n in near) / len(near) if near else spot.centre)
            _settle(layer, wanted, gap)


def _settle(layer: list[Spot], wanted: list[float], gap: float) -> None:
    """Move each spot as near to its wanted centre as the layer's order and widths allow (least squares)."""
    offsets, position = [], 0.0
    for index, spot in enumerate(layer):
        position += spot.width / 2 if index == 0 else layer[index - 1].width / 2 + gap + spot.width / 2
        offsets.append(position)
    blocks: list[list[float]] = []  # [mean, count]
    for target, offset in zip(wanted, offsets, strict=True):
        blocks.append([target - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            blocks[-1][0] = (blocks[-1][0] * blocks[-1][1] + mean * count) / (blocks[-1][1] + count)
            blocks[-1][1] += count
    means = [mean for mean, count in blocks for _ in range(int(count))]
    for spot, mean, offset in zip(layer, means, offsets, strict=True):
        spot.centre = mean + offset
