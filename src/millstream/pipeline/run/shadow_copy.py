"""Turns a job into a copy that writes elsewhere: to replay the past, with the same code or with other code.

The copy has another name, and so a separate checkpoint, separate consumer groups and transactional ids. The
original can't see anything that the copy does. The names of the copy's topics and views begin with the
prefix. Where the original reads its own results (a topic between two of its queries, a feedback), the copy
reads the copy's.
"""

from __future__ import annotations

import re
from dataclasses import replace

from millstream.core.errors import ConfigError, TopologyError
from millstream.pipeline.dsl.declaring import check_topic, check_view
from millstream.pipeline.dsl.graph import TopicSink
from millstream.pipeline.dsl.topology import Topology


def write_elsewhere(flow: Topology, prefix: str) -> None:
    """Turn a topology into a copy of itself, in place. Nothing else may use the topology."""
    own = {topic for sink in flow.sinks for topic in sink.topics}
    try:
        flow.name = _topic(prefix, flow.name, flow.at)
        for source in flow.sources:
            if source.pattern is not None and any(map(source.reads, own)):
                raise ConfigError(
                    f"--output-prefix: the pattern {source.pattern!r} ({source.at}) matches topics that the"
                    " job writes itself, and the copy's have other names; read them by their names in a"
                    " source of their own"
                )
            if source.topic in own:
                source.topic = _topic(prefix, source.topic, source.at)
        for number, sink in enumerate(flow.sinks):
            if isinstance(sink, TopicSink):
                flow.sinks[number] = replace(sink, topic=_topic(prefix, sink.topic, sink.at))
            else:
                changelog = sink.changelog and _topic(prefix, sink.changelog, sink.at)
                name = view_prefix(prefix) + sink.name
                check_view(name, sink.at)
                flow.sinks[number] = replace(sink, name=name, changelog=changelog)
    except TopologyError as error:
        raise ConfigError(f"--output-prefix {prefix!r}: {error}") from None


def view_prefix(prefix: str) -> str:
    """The prefix in characters that a table's name may have: ``replay-`` becomes ``replay_``."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", prefix)


def _topic(prefix: str, name: str, at: str) -> str:
    check_topic(prefix + name, at)
    return prefix + name
