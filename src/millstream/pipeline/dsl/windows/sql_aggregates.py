"""Splits SQL aggregates into the calls that the kernel computes and the SQL that Spark computes.

In ``sum(eur * 2) / count(*)`` the kernel computes ``sum`` and ``count``. Spark computes the arguments of the
calls before it, as columns, and the expression around the calls after it. Apart from the calls themselves,
everything stays Spark's SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.pipeline.dsl.expressions import SqlToken, columns_used, tokens_of
from millstream.pipeline.kernel.channels import HIDDEN
from millstream.pipeline.kernel.windows.calls import CAN_BE_DISTINCT, FUNCTIONS, Call, PythonAggregate
from millstream.sqltypes.ddl import quoted

_SECOND_MAY_BE_TRUE = ("first", "first_value", "last", "last_value", "any_value")


class NotOnKernel(ValueError):
    """The kernel can't compute this aggregate; the message lists what it can."""


@dataclass(slots=True)
class SplitAggregates:
    """The columns that the calls take, the calls, and the SQL that makes the results from the calls."""

    columns: dict[str, str] = field(default_factory=dict)  # name by SQL
    calls: dict[tuple[object, ...], Call] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)  # SQL by name

    @property
    def plain(self) -> bool:
        """True if the calls are the results, in the same order and under the same names."""
        names = [call.name for call in self.calls.values()]
        return names == list(self.results) and all(self.results[name] == quoted(name) for name in names)

    @property
    def selected(self) -> tuple[str, ...]:
        """The columns as Spark selects them."""
        return tuple(f"{sql} AS {quoted(name)}" for sql, name in self.columns.items())

    def column(self, sql: str) -> str:
        return self.columns.setdefault(sql.strip(), f"{HIDDEN}{len(self.columns)}")

    def call(self, name: str | None, function: str, arguments: Iterable[str], **how: object) -> str:
        """The quoted name of a call's result column. Equal calls share one column."""
        columns = tuple(self.column(sql) for sql in arguments)
        known = (
            function,
            columns,
            *((word, id(one) if word == "python" else one) for word, one in how.items()),
        )
        if known not in self.calls:
            made = name if name is not None else f"{HIDDEN}result_{len(self.calls)}"
            self.calls[known] = Call(made, function, columns, **how)  # type: ignore[arg-type]
        return quoted(self.calls[known].name)


def take_apart(aggregates: Mapping[str, str | PythonAggregate], keys: Iterable[str]) -> SplitAggregates:
    """The calls for the kernel. Outside of calls, only ``keys`` (with the window's bounds) are allowed."""
    apart = SplitAggregates()
    made: dict[str, str] = {}
    for name, given in sorted(aggregates.items()):  # the state kept for them must not depend on their order
        if isinstance(given, PythonAggregate):
            made[name] = apart.call(name, given.name, given.arguments, python=given)
        else:
            made[name] = _Expression(name, given, apart, list(keys)).taken()
    apart.results = {name: made[name] for name in aggregates}
    return apart


class _Expression:
    """One aggregate expression."""

    def __init__(self, name: str, sql: str, apart: SplitAggregates, outside: list[str]) -> None:
        self._name, self._sql, self._apart, self._outside = name, sql, apart, outside
        self._tokens = tokens_of(sql)

    def taken(self) -> str:
        """The expression with its calls replaced by columns."""
        tokens, made, at, copied, calls = self._tokens, [], 0, 0, 0
        while at < len(tokens):
            if not self._is_call(at):
                at += 1
                continue
            close, end = self._extent(at)
            alone = at == 0 and end == len(tokens)
            made.append(self._sql[copied : tokens[at].start])
            made.append(self._call(at, close, end, self._name if alone else None))
            copied = tokens[end - 1].end
            at, calls = end, calls + 1
        made.append(self._sql[copied:])
        rest = "".join(made).strip()
        known = {name.lower() for name in self._outside}
        left = [(token.kind, token.text) for token in tokens_of(rest)]
        strange = [
            name
            for name in columns_used(left)
            if name.lower() not in known and quoted(name) not in [quoted(c.name) for c in self._calls()]
        ]
        if strange or not calls:
            raise self._wrong(f"{strange[0]!r} is outside an aggregate" if strange else "it has no aggregate")
        return rest

    def _calls(self) -> Iterable[Call]:
        return self._apart.calls.values()

    def _is_call(self, at: int) -> bool:
        token = self._tokens[at]
        following = self._tokens[at + 1].text if at + 1 < len(self._tokens) else ""
        before = self._tokens[at - 1].text if at else ""
        return token.kind == "word" and token.text.lower() in FUNCTIONS and following == "(" and before != "."

    def _closing(self, at: int) -> int:
        """The index of the parenthesis that closes the one at ``at``."""
        depth = 0
        for number in range(at, len(self._tokens)):
            depth += {"(": 1, ")": -1}.get(self._tokens[number].text, 0)
            if depth == 0:
                return number
        raise self._wrong("a '(' is not closed")

    def _extent(self, at: int) -> tuple[int, int]:
        """The index of the parenthesis that closes a call's arguments, and the index after the whole call."""
        close = self._closing(at + 1)
        end = close + 1
        if self._words(end, 2) in ("ignore nulls", "respect nulls"):
            end += 2
        if self._words(end, 1) == "filter" and self._words(end + 1, 1) == "(":
            end = self._closing(end + 1) + 1
        if self._words(end, 1) in ("over", "within"):
            raise self._wrong(f"{self._words(end, 1).upper()} is not possible in a window's aggregate")
        return close, end

    def _words(self, at: int, count: int) -> str:
        return " ".join(token.text.lower() for token in self._tokens[at : at + count])

    def _call(self, at: int, close: int, end: int, name: str | None) -> str:
        function = self._tokens[at].text.lower()
        inner = self._tokens[at + 2 : close]
        if any(self._is_call(number) for number in range(at + 2, close)):
            raise self._wrong("an aggregate can't contain another")
        distinct = bool(inner) and inner[0].text.lower() == "distinct"
        if inner and inner[0].text.lower() in ("distinct", "all"):
            inner = inner[1:]
        arguments = self._split(inner)
        where = None
        suffix = self._words(close + 1, 2)
        filtered = [number for number in range(close + 1, end) if self._words(number, 1) == "filter"]
        if filtered:
            opened = filtered[0] + 1
            if self._words(opened + 1, 1) != "where":
                raise self._wrong("write FILTER as FILTER (WHERE condition)")
            where = self._text(self._tokens[opened + 2 : self._closing(opened)])
        ignore_nulls = suffix == "ignore nulls"
        if (
            function in _SECOND_MAY_BE_TRUE
            and len(arguments) == 2
            and arguments[1].lower() in ("true", "false")
        ):
            ignore_nulls |= arguments.pop().lower() == "true"
        if function == "approx_count_distinct":
            del arguments[1:]  # the wanted precision; the kernel counts exactly
        if function == "count_if":
            if len(arguments) != 1:
                raise self._wrong("count_if takes one argument, a condition")
            where = arguments[0] if where is None else f"({arguments[0]}) AND ({where})"
            arguments = []
        if function == "count" and not distinct and arguments in (["*"], ["1"]):
            arguments = []
        least, most = FUNCTIONS[function]
        if not least <= len(arguments) <= most or (function == "count" and distinct and not arguments):
            raise self._wrong(f"{function} does not take {len(arguments)} arguments")
        if distinct and function not in CAN_BE_DISTINCT:
            raise self._wrong(f"{function} with DISTINCT is not supported")
        how: dict[str, object] = {"distinct": distinct, "ignore_nulls": ignore_nulls}
        how["where"] = None if where is None else self._apart.column(where)
        return self._apart.call(name, function, arguments, **how)

    def _split(self, inner: list[SqlToken]) -> list[str]:
        """The arguments, split at the commas that are not inside parentheses or brackets."""
        parts: list[list[SqlToken]] = [[]]
        depth = 0
        for token in inner:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
            if token.text == "," and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        return [self._text(part) for part in parts if part]

    def _text(self, tokens: list[SqlToken]) -> str:
        return self._sql[tokens[0].start : tokens[-1].end] if tokens else ""

    def _wrong(self, why: str) -> NotOnKernel:
        return NotOnKernel(
            f"{self._name}={self._sql!r}: {why}. The kernel's aggregates are {', '.join(sorted(FUNCTIONS))},"
            " each with FILTER (WHERE ...), and functions of your own (millstream.aggregate)"
        )
