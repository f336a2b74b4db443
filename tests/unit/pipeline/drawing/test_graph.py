"""Drawings of topologies: text, Mermaid and SVG."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from millstream import Topology
from millstream.examples.fraud import pipeline as fraud
from millstream.pipeline.drawing.boxes import Box, Graph
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.drawing.layout import layout
from millstream.pipeline.drawing.svg import draw_svg
from millstream.pipeline.drawing.text import draw_text
from millstream.pipeline.dsl.load import load_topology

SCHEMA = "card string, amount double, paid_at timestamp"


def small() -> Topology:
    flow = Topology("t")
    payments = flow.source("payments", schema=SCHEMA, time="paid_at")
    payments.where("amount > 5").select("card").to_topic("big", key="card")
    payments.rejected.to_topic("bad")
    return flow


def test_text_shows_every_box_and_how_they_hang_together() -> None:
    assert (
        draw_text(graph(small()))
        == """\
        ╔═════════════════════════╗
        ║ payments                ║
        ║ topic, json, event time ║
        ║   (paid_at)             ║
        ╚═════════════════════════╝
                     │
          ┌──────────┴──────────┐
          ▼                     ▼
┌──────────────────┐  ╭───────────────────╮
│ select 1         │  │ payments.rejected │
│ where amount > 5 │  │ did not parse     │
│ select card      │  ╰───────────────────╯
└──────────────────┘            │
          │                     │
          ▼                     ▼
 ╔═════════════════╗        ╔═══════╗
 ║ big             ║        ║ bad   ║
 ║ topic, key card ║        ║ topic ║
 ╚═════════════════╝        ╚═══════╝"""
    )


def test_mermaid_escapes_what_it_would_take_for_markup() -> None:
    text = graph(small()).mermaid()
    assert text.startswith("flowchart TD\n")
    assert "where amount &gt; 5<br/>select card" in text
    assert text.count(" --> ") == 4


def test_a_feedback_through_a_topic_is_drawn_without_going_round_for_ever() -> None:
    flow = Topology("t")
    flow.source("a", format="text", feedback=True).where("value = 'x'").to_topic("a")
    drawn = graph(flow)
    assert len(drawn.boxes) == 2
    assert len(drawn.arrows) == 2
    assert "▼" in draw_text(drawn)


def test_svg_is_well_formed_and_has_all_the_text() -> None:
    flow = load_topology(Path(fraud.__file__))
    drawn = graph(flow)
    root = ElementTree.fromstring(draw_svg(drawn, "fraud"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for box in drawn.boxes:
        assert box.title in texts
    arrows = [e for e in root.iter("{http://www.w3.org/2000/svg}path") if e.get("class") == "arrow"]
    assert len(arrows) == len(drawn.arrows)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(min_value=1, max_value=9))
    boxes = tuple(
        Box(f"b{i}", "operator", f"box {i}", ("x" * draw(st.integers(0, 30)),)) for i in range(count)
    )
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] < p[1])
    chosen = draw(st.lists(pairs, max_size=14, unique=True)) if count > 1 else []
    return Graph(boxes, tuple((f"b{a}", f"b{b}") for a, b in chosen))


@given(graphs())
def test_boxes_never_overlap_and_arrows_always_lead_down(drawn: Graph) -> None:
    widths = {box.key: 10.0 + len(box.lines[0]) for box in drawn.boxes}
    placed = layout(widths, drawn.arrows, gap=2)
    where = {spot.key: spot for layer in placed.layers for spot in layer if spot.key is not None}
    assert set(where) == set(widths)
    for tail, head in drawn.arrows:
        assert where[tail].layer < where[head].layer
    for layer in placed.layers:
        for left, right in pairwise(layer):
            assert left.centre + left.width / 2 + 2 <= right.centre - right.width / 2 + 1e-6


@given(graphs())
def test_every_title_is_whole_in_the_text_drawing(drawn: Graph) -> None:
    text = draw_text(drawn)
    for box in drawn.boxes:
        assert box.title in text
    assert len(ElementTree.fromstring(draw_svg(drawn, "x"))) > 0
