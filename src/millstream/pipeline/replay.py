"""A copy of a job that writes elsewhere: for a look at yesterday, with the same code or other.

The copy has another name, and with it a checkpoint, consumer groups and transactional ids of its own, so
nothing that it does can be seen by the original. Its topics and views have the prefix in front; what the
original reads of its own results (a topic between two of its queries, a feedback), the copy reads of its own.
"""

from __future__ import annotations

import re
from dataclasses import replace

from millstream.errors import ConfigError, TopologyError
from millstream.pipeline.declaring import check_topic, check_view
from millstream.pipeline.sinks import TopicSink
from millstream.pipeline.topology import Topology


def write_elsewhere(flow: Topology, prefix: str) -> None:
    """Make a topology, which nobody else uses, the copy of itself."""
    own = {topic for sink in flow.sinks for topic in sink.topics}
    try:
        flow.name = _topic(prefix, flow.name, flow.at)
        for source in flow.sources:
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
    """What can stand in a table's name: ``replay-`` is ``replay_``."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", prefix)


def _topic(prefix: str, name: str, at: str) -> str:
    check_topic(prefix + name, at)
    return prefix + name
