"""What all steps have in common: rows of the model, what is known of a stream, and the step itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

NEVER = -(2**62)


@dataclass(frozen=True)
class Row:
    """A row of the model. ``watermark`` is what the row is judged by: the latest time that its partition had
    shown before it, less the lateness. Results of stateful operators are never late."""

    values: dict[str, Any]
    time: int
    place: tuple[int, ...] = ()
    watermark: int = NEVER

    def with_values(self, values: dict[str, Any]) -> Row:
        return replace(self, values=values)

    @property
    def is_late(self) -> bool:
        return self.time < self.watermark


@dataclass(frozen=True)
class About:
    """What is known of a stream before there are rows. ``ordered``: rows of one time have an order that the
    docs promise. ``derived``: it is the output of a stateful operator. ``opaque``: rows have lost their place
    in the log, so which rows are late depends on how batches were cut."""

    columns: dict[str, str]  # kinds by name
    time: str
    ordered: bool = True
    derived: bool = False
    opaque: bool = False
    of_table: bool = False
    lateness: int = 0  # of its source; streams with different ones have no common time

    def having(self, kind: str) -> list[str]:
        return [name for name, own in self.columns.items() if own == kind]


Given = dict[str, list[Row]]  # the rows of a step by output; its own stream is ""


@dataclass(frozen=True)
class Step:
    """One line of a topology."""

    name: str
    inputs: tuple[str, ...]
    about: dict[str, About] = field(repr=False)  # what is known of its outputs

    def declare(self, flow: Any, *streams: Any) -> Any:
        raise NotImplementedError

    def expected(self, *rows: list[Row]) -> Given:
        raise NotImplementedError


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.time, row.place))


def by_key(rows: Iterable[Row], keys: Iterable[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of their keys; each key's rows are in time order."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    names = list(keys)
    for row in in_order(rows):
        found.setdefault(tuple(row.values[name] for name in names), []).append(row)
    return found
