"""A picture of a topology: boxes and arrows, for text.py and svg.py; and the same as Mermaid.

Nothing here needs a topology, so the console, which draws what jobs report, needs no Spark and no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    key: str
    kind: str  # topic, view, or the kind of a stream
    title: str
    lines: tuple[str, ...]
    streams: tuple[str, ...] = ()  # the names of the streams that are drawn in it


@dataclass(frozen=True, slots=True)
class Graph:
    """``counted`` are, for each arrow, the counts that add up to the rows along it (``counting.py``)."""

    boxes: tuple[Box, ...]
    arrows: tuple[tuple[str, str], ...]
    counted: tuple[tuple[str, ...], ...] = ()

    def mermaid(self) -> str:
        shapes = {
            "topic": ("[(", ")]"),
            "view": ("[[", "]]"),
            "union": ("{{", "}}"),
            "rejected": ("(", ")"),
            "channel": ("(", ")"),
        }
        lines = ["flowchart TD"]
        for box in self.boxes:
            left, right = shapes.get(box.kind, ("[", "]"))
            text = "<br/>".join(_mermaid_text(part) for part in (f"<b>{box.title}</b>", *box.lines))
            lines.append(f'    {box.key}{left}"{text}"{right}')
        lines.extend(f"    {tail} --> {head}" for tail, head in self.arrows)
        return "\n".join(lines)


def _mermaid_text(text: str) -> str:
    bold = text.startswith("<b>")
    inner = text[3:-4] if bold else text
    safe = inner.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<b>{safe}</b>" if bold else safe
