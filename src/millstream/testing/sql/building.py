"""What functions of rows are built from: values with types, names and their places, implicit casts.

A compiled expression is a Python function of a row, which is a list: the columns first, then a place for
every variable of a lambda and for what every function of whole columns gave. It is called when its value is
needed and not before, so that ``if(n = 0, NULL, total / n)`` divides by no zero.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.pipeline.expressions import no_such_column
from millstream.testing.sql import types
from millstream.testing.sql.casts import cast
from millstream.testing.sql.nodes import AnalysisError
from millstream.testing.sql.types import Type

Run = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression with its type; the column's name, if it is one; and if it is the same in all rows."""

    type: Type
    run: Run
    name: str | None = None
    constant: bool = False


@dataclass(slots=True)
class Moment:
    """The time on the wall, for ``current_timestamp()``: one for all rows of a batch. What was compiled for
    it is kept with it, since every batch asks for the same."""

    now: dt.datetime
    made: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """The names that an expression may use, and where in a row each is."""

    columns: dict[str, tuple[int, Type]]
    moment: Moment
    variables: dict[str, tuple[int, Type]] = field(default_factory=dict)
    # Shared by inner scopes: how long a row is by now, and which of its columns are used.
    width: list[int] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    # What works on all rows at once, before any of them is looked at.
    wholes: list[Callable[[list[list[Any]]], None]] = field(default_factory=list)
    known_as: str | None = None  # the alias of the rows, by which columns may be called too

    @classmethod
    def of(cls, columns: dict[str, Type], moment: Moment, known_as: str | None = None) -> Scope:
        places = {name: (at, kind) for at, (name, kind) in enumerate(columns.items())}
        return cls(places, moment, width=[len(columns)], known_as=known_as)

    def is_alias(self, name: str) -> bool:
        """A column of that name comes second, as in Spark."""
        return self.known_as is not None and name.lower() == self.known_as.lower()

    def find(self, name: str) -> tuple[str, int, Type] | None:
        if name.lower() in self.variables:
            return name, *self.variables[name.lower()]
        if name in self.columns:
            return name, *self.columns[name]
        return next(
            ((own, *place) for own, place in self.columns.items() if own.lower() == name.lower()), None
        )

    def missing(self, name: str) -> AnalysisError:
        return AnalysisError(no_such_column(name, self.columns))

    def inner(self, names: Sequence[str], kinds: Sequence[Type]) -> tuple[Scope, list[int]]:
        """A scope in which a lambda's variables are known, and their places in a row."""
        places = [self.place() for _ in names]
        known = {name: (at, kind) for name, at, kind in zip(names, places, kinds, strict=True)}
        return replace(self, variables={**self.variables, **known}), places

    def place(self) -> int:
        """Another place in a row."""
        self.width[0] += 1
        return self.width[0] - 1


Build = Callable[[str, list[Compiled], Scope], Compiled]
Kind = Type | str | None  # what an argument is to be: a type, "number", or anything
Table = dict[str, Build]


def constant(value: Any, kind: Type) -> Compiled:
    return Compiled(kind, lambda row: value, constant=True)


def converted(given: Compiled, target: Type) -> Compiled:
    """An explicit or known cast."""
    if given.type == target:
        return given
    function, run = cast(given.type, target), given.run

    def casted(row: list[Any]) -> Any:
        value = run(row)
        return None if value is None else function(value)

    return Compiled(target, casted, None, given.constant)


def coerced(name: str, given: Compiled, wanted: Kind) -> Compiled:
    """An argument as a function takes it, where Spark would cast it without being asked."""
    if wanted is None or given.type == wanted:
        return given
    if wanted == "number":
        if types.is_number(given.type):
            return given
        wanted = types.DOUBLE
    assert isinstance(wanted, Type)
    narrower = types.is_number(given.type) and types.is_number(wanted) and not given.constant
    if given.type.inner or (narrower and types.common(given.type, wanted) != wanted):
        raise AnalysisError(f"{name} needs {wanted.text} here, not {given.type.text}")
    return converted(given, wanted)


def together(name: str, given: Sequence[Compiled]) -> list[Compiled]:
    """Values of several expressions as one type."""
    kind = given[0].type
    for one in given[1:]:
        found = types.common(kind, one.type)
        if found is None:
            raise AnalysisError(f"{name}: {kind.text} and {one.type.text} have no type in common")
        kind = found
    return [converted(one, kind) for one in given]


def strict(
    function: Callable[..., Any],
    parameters: Sequence[Kind],
    result: Type | Callable[[list[Type]], Type],
    *,
    optional: int = 0,
    repeat: bool = False,
) -> Build:
    """A function that is null where an argument is. The last ``optional`` parameters may be left out; with
    ``repeat`` the last may come again and again."""

    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, len(parameters) - optional, None if repeat else len(parameters))
        wanted = [*parameters, *list(parameters[-1:]) * (len(given) - len(parameters))][: len(given)]
        arguments = [coerced(name, one, kind) for one, kind in zip(given, wanted, strict=True)]
        kind = result if isinstance(result, Type) else result([one.type for one in arguments])
        return Compiled(
            kind,
            applied(function, [one.run for one in arguments]),
            constant=all(one.constant for one in arguments),
        )

    return build


def check_count(name: str, given: Sequence[object], least: int, most: int | None) -> None:
    if len(given) < least or (most is not None and len(given) > most):
        wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise AnalysisError(f"{name}() takes {wanted} arguments, not {len(given)}")


def applied(function: Callable[..., Any], runs: Sequence[Run]) -> Run:
    """A function of values as one of rows: null if one of them is."""
    if not runs:
        return lambda row: function()
    if len(runs) == 1:
        only = runs[0]

        def one(row: list[Any]) -> Any:
            value = only(row)
            return None if value is None else function(value)

        return one
    if len(runs) == 2:
        left, right = runs

        def two(row: list[Any]) -> Any:
            a = left(row)
            if a is None:
                return None
            b = right(row)
            return None if b is None else function(a, b)

        return two

    def many(row: list[Any]) -> Any:
        values = [run(row) for run in runs]
        return None if any(value is None for value in values) else function(*values)

    return many
