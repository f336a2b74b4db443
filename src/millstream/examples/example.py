"""What every example consists of: events, what is planted among them, and a score of what was found."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

# The results by topic: rows in the order in which they were written.
Results = Mapping[str, Sequence[Mapping[str, Any]]]

BEGINNING_MS = 1_767_225_600_000  # 2026-01-01: where a generator starts by default


@dataclass(frozen=True, slots=True)
class Event:
    """A record to produce to ``topic`` at ``at_ms``. Without a value, it deletes its key in a table."""

    at_ms: int
    topic: str
    key: str
    value: bytes | None
    well_formed: bool = True


class Generator(Protocol):
    """Created with ``seed``, ``start_ms`` and ``seconds``; the same three give the same events.

    ``events`` yields them in the order in which they are sent. If ``seconds`` is None they are endless.
    Otherwise they span that much time, and everything planted is over early enough for the pipeline to find
    it. ``planted`` grows as events are taken.
    """

    seed: int
    start_ms: int
    seconds: float | None

    @property
    def planted(self) -> Sequence[Any]: ...

    def events(self) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True)
class Score:
    """For one kind of planted thing: how much was found, and how many answers nothing planted explains."""

    kind: str
    planted: int
    found: int
    given: int  # answers of this kind
    right: int  # answers that something planted explains

    @property
    def recall(self) -> float | None:
        return self.found / self.planted if self.planted else None

    @property
    def precision(self) -> float | None:
        return self.right / self.given if self.given else None


def exact(kind: str, planted: Set[Any], told: Sequence[Any]) -> Score:
    """The score if an answer must equal a planted thing. An answer given twice is right once."""
    found = len(planted & set(told))
    return Score(kind, planted=len(planted), found=found, given=len(told), right=found)


@dataclass(frozen=True, slots=True)
class Example:
    """An example's description, which does not load its pipeline."""

    name: str  # also of its package
    title: str  # what it shows, in one line
    about: str  # the same, in a paragraph
    operators: tuple[str, ...]  # the operators that it is an example of
    results: Mapping[str, tuple[str, ...]]  # the topics that ``check`` needs, with the columns to show
    view: str  # the view to show at the end
    change: Mapping[str, str]  # by file: what to change first in a copy
    seconds: float  # the time that the events span, with every kind planted
    speed: float = 1.0  # seconds of event time per second of a run
    partitions: int = 2  # of the generated topics
    recall: float = 1.0  # what the pipeline must reach: rules of thumb may miss some, and blame some
    precision: float = 1.0

    @property
    def directory(self) -> Path:
        return Path(__file__).parent / self.name

    @property
    def pipeline(self) -> Path:
        return self.directory / "pipeline.py"

    def generator(self, *, seed: int, start_ms: int = BEGINNING_MS, seconds: float | None) -> Generator:
        module = importlib.import_module(f"millstream.examples.{self.name}.generate")
        made: Generator = module.Generator(seed=seed, start_ms=start_ms, seconds=seconds)
        return made

    def check(self, planted: Sequence[Any], results: Results) -> list[Score]:
        module = importlib.import_module(f"millstream.examples.{self.name}.check")
        scores: list[Score] = module.check(planted, results)
        return scores

    def reached(self, scores: Sequence[Score]) -> bool:
        """True if the scores reach ``recall`` and ``precision``. False if nothing was planted, because that
        proves nothing."""
        planted = sum(score.planted for score in scores)
        found = sum(score.found for score in scores)
        given, right = sum(score.given for score in scores), sum(score.right for score in scores)
        return 0 < planted * self.recall <= found and right >= given * self.precision


def iso(at_ms: int) -> str:
    """A time, formatted as in events."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(text: object) -> int:
    """The time in an event or a result, in milliseconds."""
    return round(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)
