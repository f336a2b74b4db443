"""The sinks that a topology's rows go to: topics and views. Declarations only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.pipeline.dsl.streams import Stream
    from millstream.pipeline.formats.encoded import Encoding


@dataclass(frozen=True, slots=True)
class TopicSink:
    stream: Stream
    topic: str
    at: str
    key: str | None
    value: str | tuple[str, ...] | None
    time: str | None
    delete_when: str | None = None
    encoding: Encoding | None = None  # for values that carry the id of a schema; None: JSON

    @property
    def label(self) -> str:
        return f"topic {self.topic}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the sink writes."""
        return (self.topic,)


@dataclass(frozen=True, slots=True)
class ViewSink:
    stream: Stream
    name: str
    at: str
    key: tuple[str, ...]
    delete_when: str | None
    order: str | None
    changelog: str | None = None

    @property
    def label(self) -> str:
        return f"view {self.name}"

    @property
    def topics(self) -> tuple[str, ...]:
        return () if self.changelog is None else (self.changelog,)


Sink = TopicSink | ViewSink
