"""What every example is made of: events, what was planted among them, and a score of what was found."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

# What came out, by topic: the rows in the order in which they were written.
Results = Mapping[str, Sequence[Mapping[str, Any]]]

BEGINNING_MS = 1_767_225_600_000  # 2026-01-01: where a generator begins that is not told


@dataclass(frozen=True, slots=True)
class Event:
    """A record to produce to ``topic`` at ``at_ms``. One without a value deletes its key in a table."""

    at_ms: int
    topic: str
    key: str
    value: bytes | None
    well_formed: bool = True


class Generator(Protocol):
    """Made with ``seed``, ``start_ms`` and ``seconds``; the same three give the same events.

    ``events`` gives them in the order of their sending. With ``seconds`` of None they are endless; otherwise
    they span so much time, and whatever is planted is over early enough for the pipeline to find it.
    ``planted`` grows as events are taken.
    """

    seed: int
    start_ms: int
    seconds: float | None

    @property
    def planted(self) -> Sequence[Any]: ...

    def events(self) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True)
class Score:
    """How one kind of what was planted was found, and how much was given that nothing planted explains."""

    kind: str
    planted: int
    found: int
    given: int  # answers of this kind
    right: int  # of them, those that something planted explains

    @property
    def recall(self) -> float | None:
        return self.found / self.planted if self.planted else None

    @property
    def precision(self) -> float | None:
        return self.right / self.given if self.given else None


def exact(kind: str, planted: Set[Any], told: Sequence[Any]) -> Score:
    """The score where what is told equals what was planted, or is wrong. Told of twice, it is right once."""
    found = len(planted & set(told))
    return Score(kind, planted=len(planted), found=found, given=len(told), right=found)


@dataclass(frozen=True, slots=True)
class Example:
    """What is known of an example without loading its pipeline."""

    name: str  # of its package too
    title: str  # what it shows, in a line
    about: str  # and in a paragraph
    operators: tuple[str, ...]  # what of a topology it is an example for
    results: Mapping[str, tuple[str, ...]]  # the topics that ``check`` needs, and the columns to show of each
    view: str  # the one to show at the end
    change: Mapping[str, str]  # what to change first in a copy, by file
    seconds: float  # of events, among which every kind is planted
    speed: float = 1.0  # seconds of event time in a second of a run
    partitions: int = 2  # of the topics that are generated
    recall: float = 1.0  # what has to be reached: rules of thumb may miss some, and blame some
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
        """Whether as much was found as this example promises, and no more blamed. Nothing planted proves
        nothing."""
        planted = sum(score.planted for score in scores)
        found = sum(score.found for score in scores)
        given, right = sum(score.given for score in scores), sum(score.right for score in scores)
        return 0 < planted * self.recall <= found and right >= given * self.precision


def iso(at_ms: int) -> str:
    """A time as events carry it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(text: object) -> int:
    """A time that an event or a result carries."""
    return round(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)
