"""The parts of which functions of rows are built: typed values, names and their places, implicit casts.

A compiled expression is a Python function of a row. A row is a list: the columns first, then a place for
every variable of a lambda and for the result of every function of whole columns. An expression is called
only when its value is needed, so ``if(n = 0, NULL, total / n)`` never divides by zero.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.sql import types
from millstream.pipeline.sql.casts import cast
from millstream.pipeline.sql.nodes import AnalysisError
from millstream.pipeline.sql.types import Type

Run = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression with its type, its name if it is a column, and whether it is the same in all rows."""

    type: Type
    run: Run
    name: str | None = None
    constant: bool = False


@dataclass(slots=True)
class Moment:
    """The wall-clock time for ``current_timestamp()``, one for all rows of a batch. ``functions`` are the
    user's Python functions that SQL may call. ``made`` keeps what was compiled, because every batch needs the
    same."""

    now: dt.datetime
    functions: Mapping[str, Any] = field(default_factory=dict)
    made: dict[Any, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """The names that an expression may use, and the place of each in a row."""

    columns: dict[str, tuple[int, Type]]
    moment: Moment
    variables: dict[str, tuple[int, Type]] = field(default_factory=dict)
    # Shared by inner scopes: the present length of a row, and which of its columns are used.
    width: list[int] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    # Functions that work on all rows at once, before any row is evaluated.
    wholes: list[Callable[[list[list[Any]]], None]] = field(default_factory=list)
    known_as: str | None = None  # the alias of the rows, with which columns may be qualified

    @classmethod
    def of(cls, columns: dict[str, Type], moment: Moment, known_as: str | None = None) -> Scope:
        places = {name: (at, kind) for at, (name, kind) in enumerate(columns.items())}
        return cls(places, moment, width=[len(columns)], known_as=known_as)

    def is_alias(self, name: str) -> bool:
        """True if a name is the alias of the rows. A column of that name comes second, as in Spark."""
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
        """A scope that knows a lambda's variables, and their places in a row."""
        places = [self.place() for _ in names]
        known = {name: (at, kind) for name, at, kind in zip(names, places, kinds, strict=True)}
        return replace(self, variables={**self.variables, **known}), places

    def place(self) -> int:
        """Reserve another place in a row."""
        self.width[0] += 1
        return self.width[0] - 1


Build = Callable[[str, list[Compiled], Scope], Compiled]
Kind = Type | str | None  # what an argument must be: a type, "number", or None for anything
Table = dict[str, Build]


def constant(value: Any, kind: Type) -> Compiled:
    return Compiled(kind, lambda row: value, constant=True)


def converted(given: Compiled, target: Type) -> Compiled:
    """An expression with an explicit cast, or one that is known to be allowed."""
    if given.type == target:
        return given
    function, run = cast(given.type, target), given.run

    def casted(row: list[Any]) -> Any:
        value = run(row)
        return None if value is None else function(value)

    return Compiled(target, casted, None, given.constant)


def coerced(name: str, given: Compiled, wanted: Kind) -> Compiled:
    """An argument as a function takes it, cast where Spark would cast it implicitly."""
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
    """Several expressions, cast to the type that they have in common."""
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
    """A function that is null if an argument is null. The last ``optional`` parameters may be left out. With
    ``repeat``, the last parameter may be repeated."""

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
    """A function of values as a function of rows: null if one of the values is null."""
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
