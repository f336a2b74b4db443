"""Turns a topology into boxes and arrows.

A step without a name and with only one consumer is drawn inside that consumer's box: the reader sees "bursts"
with its window and its condition, not three boxes in a row.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.pipeline.drawing.boxes import Box, Graph
from millstream.pipeline.dsl.graph import StreamGraph, StreamNode, TopicSink
from millstream.pipeline.planning.counting import given_by, taken_by


def graph(flow: StreamGraph) -> Graph:
    """Boxes for the topics, the streams that lead to a sink, and the views."""
    used = {id(node) for sink in flow.sinks for node in sink.stream.upstream()}
    streams = [stream for stream in flow.streams if id(stream) in used]
    drawn_in = {id(stream): _drawn_in(stream, streams, flow) for stream in streams}
    inside = {key: outer for key, outer in drawn_in.items() if outer is not None}

    def home(stream: StreamNode) -> StreamNode:
        while id(stream) in inside:
            stream = inside[id(stream)]
        return stream

    boxes: dict[str, Box] = {}
    keys: dict[int, str] = {}
    for stream in streams:
        if stream.topic is not None:
            keys[id(stream)] = _topic_box(boxes, stream.topic, stream.label(), stream.name)
        elif id(stream) not in inside:
            keys[id(stream)] = f"s{len(boxes)}"
            within = [other.name for other in streams if home(other) is stream]
            boxes[keys[id(stream)]] = Box(
                keys[id(stream)], stream.kind, stream.name, _lines(stream, inside), tuple(within)
            )
    arrows: dict[tuple[str, str], tuple[str, ...]] = {}
    for stream in streams:
        for origin in stream.inputs:
            tail, head = home(origin), home(stream)
            if tail is not head:
                arrows[keys[id(tail)], keys[id(head)]] = given_by(flow, origin, to=stream)
    for sink in flow.sinks:
        if isinstance(sink, TopicSink):
            head_key = _topic_box(boxes, sink.topic, f"key {sink.key}" if sink.key else "")
        else:
            head_key = f"v{len(boxes)}"
            about = ["view, key " + ", ".join(sink.key)]
            about += ["index " + ", ".join(columns) for columns in sink.indexes]
            boxes[head_key] = Box(head_key, "view", sink.name, tuple(about))
            if sink.changelog is not None:
                arrows[head_key, _topic_box(boxes, sink.changelog, "changelog")] = taken_by(sink.changelog)
        arrows[keys[id(home(sink.stream))], head_key] = given_by(flow, sink.stream)
    return Graph(tuple(boxes.values()), tuple(arrows), tuple(arrows.values()))


def _topic_box(boxes: dict[str, Box], topic: str, about: str, stream: str | None = None) -> str:
    streams = () if stream is None else (stream,)
    for box in boxes.values():
        if box.kind == "topic" and box.title == topic:
            boxes[box.key] = replace(box, streams=box.streams + streams)
            return box.key
    key = f"t{len(boxes)}"
    boxes[key] = Box(key, "topic", topic, ("topic" + (f", {about}" if about else ""),), streams)
    return key


def _drawn_in(stream: StreamNode, streams: list[StreamNode], flow: StreamGraph) -> StreamNode | None:
    """The stream in whose box this one is drawn: its only consumer, if that is a plain step after it."""
    if stream.named or any(sink.stream is stream for sink in flow.sinks):
        return None
    consumers = [other for other in streams if stream in other.inputs]
    return consumers[0] if len(consumers) == 1 and consumers[0].drawn_with_input else None


def _lines(stream: StreamNode, inside: dict[int, StreamNode]) -> tuple[str, ...]:
    """What the steps in this box do, in order."""
    lines: list[str] = []
    node: StreamNode | None = stream
    while node is not None:
        lines[:0] = [node.label()]
        node = next((origin for origin in node.inputs if inside.get(id(origin)) is node), None)
    return tuple(line for line in lines if line)
