"""Compiles an expression's tree to a function of a row, and many of them to a projection of a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.pipeline.sql import hashing, jsons, lambdas, nested, numbers, operators, text, times, types
from millstream.pipeline.sql.building import (
    Build,
    Compiled,
    Moment,
    Run,
    Scope,
    constant,
    converted,
)
from millstream.pipeline.sql.casts import BadValue
from millstream.pipeline.sql.nodes import (
    Alias,
    AnalysisError,
    Call,
    Cast,
    Column,
    Lambda,
    Literal,
    Node,
    PythonCall,
    Star,
    Unsupported,
    name_of,
)
from millstream.pipeline.sql.parse import parse
from millstream.pipeline.sql.types import BOOLEAN, Type, to_arrow

FUNCTIONS: dict[str, Build] = {
    **operators.TABLE,
    **text.TABLE,
    **numbers.TABLE,
    **times.TABLE,
    **nested.TABLE,
    **jsons.TABLE,
    **hashing.TABLE,
}
# One row in, several out. True if a row that would give none gives one with null (OUTER).
GENERATORS = {"explode": False, "explode_outer": True}


def compiled(node: Node, scope: Scope) -> Compiled:
    """Compile an expression to a function of a row."""
    if isinstance(node, Literal):
        return constant(node.value, node.type)
    if isinstance(node, Column):
        return _column(node, scope)
    if isinstance(node, Alias):
        inner = compiled(node.node, scope)
        return Compiled(inner.type, inner.run, node.name, inner.constant)
    if isinstance(node, Cast):
        inner = compiled(node.node, scope)
        made = converted(inner, node.type)
        return _trying(made) if node.tries else Compiled(made.type, made.run, None, made.constant)
    if isinstance(node, Call):
        return _call(node, scope)
    if isinstance(node, PythonCall):
        arguments = [compiled(argument, scope) for argument in node.arguments]
        return Compiled(
            node.type, _of_columns(node, arguments, scope) if node.whole else _of_python(node, arguments)
        )
    if isinstance(node, Lambda):
        raise AnalysisError("a lambda is allowed only where a function takes one")
    raise AnalysisError("* is allowed only for all columns of a selection, or in count(*)")


def _of_python(node: PythonCall, arguments: list[Compiled]) -> Run:
    """A call of a user's function. Like Spark, it passes nulls too, and times without a zone."""
    function, kind = node.function, node.type
    wanted = to_arrow(kind)

    def run(row: list[Any]) -> Any:
        values = [_as_given(one.run(row)) for one in arguments]
        found = function(*values)
        try:
            return python_value(pa.scalar(_as_taken(found), wanted).as_py(), kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            name = getattr(function, "__name__", "function")
            raise BadValue(f"{name} returned {found!r}, which is not {kind.text}: {error}") from None

    return run


def _of_columns(node: PythonCall, arguments: list[Compiled], scope: Scope) -> Run:
    """A call of a function of whole columns: once for all rows, as in Spark."""
    if scope.variables:
        raise Unsupported("a pandas or Arrow UDF in a lambda")
    place = scope.place()

    def work(rows: list[list[Any]]) -> None:
        if not rows:
            return
        columns = [_array([one.run(row) for row in rows], one.type) for one in arguments]
        for row, value in zip(rows, node.function(*columns).to_pylist(), strict=True):
            row[place] = python_value(value, node.type)

    scope.wholes.append(work)
    return lambda row: row[place]


def _as_given(value: Any) -> Any:
    return (
        value.astimezone().replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
    )


def _as_taken(value: Any) -> Any:
    return value.astimezone() if isinstance(value, dt.datetime) else value


def _trying(made: Compiled) -> Compiled:
    def run(row: list[Any]) -> Any:
        try:
            return made.run(row)
        except BadValue:
            return None

    return Compiled(made.type, run)


def _column(node: Column, scope: Scope) -> Compiled:
    first, *fields = node.parts
    if fields and scope.is_alias(first) and scope.find(fields[0]) is not None:
        first, *fields = fields
    found = scope.find(first)
    if found is None:
        raise scope.missing(first)
    name, at, kind = found
    scope.used.add(at)
    made = Compiled(kind, lambda row: row[at], name)
    for part in fields:
        made = nested.field(".", [made, constant(part, types.STRING)], scope)
    return made


def _call(node: Call, scope: Scope) -> Compiled:
    if node.name in lambdas.WITH_LAMBDAS:
        return lambdas.WITH_LAMBDAS[node.name](node, scope, compiled)
    build = FUNCTIONS.get(node.name)
    if build is None or node.distinct:
        raise Unsupported(f"the function {node.name}")
    arguments: list[Node] = []
    for argument in node.arguments:
        if isinstance(argument, Star):
            arguments += [Column((name,)) for name in scope.columns]
        else:
            arguments.append(argument)
    return build(node.name, [compiled(argument, scope) for argument in arguments], scope)


# ---- tables ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Output:
    """A column of the result: either one of the table's, unchanged, or a computed one. A generator computes a
    list for every row."""

    name: str
    kind: Type
    column: str | None = None
    compiled: Compiled | None = None
    generates: bool = False
    outer: bool = False


class Projection:
    """Expressions over a table's columns: what ``select`` and ``where`` do. Built once, run many times."""

    def __init__(
        self,
        columns: dict[str, Type],
        expressions: Sequence[str | Node],
        moment: Moment,
        condition: str | Node | None = None,
        beside: Mapping[str, Type] | None = None,
        known_as: str | None = None,
    ) -> None:
        """``beside`` are columns of the table that no expression sees and that are passed on unchanged.
        ``known_as`` is the table's alias."""
        self._scope = Scope.of(columns, moment, known_as)
        self._condition = None if condition is None else _condition(condition, self._scope)
        self._outputs: list[_Output] = []
        for expression in expressions:
            node = parse(expression) if isinstance(expression, str) else expression
            if isinstance(node, Star):
                self._outputs += [self._output(part) for part in self._every(node)]
            else:
                self._outputs.append(self._output(node))
        self._outputs += [_Output(name, kind, column=name) for name, kind in (beside or {}).items()]
        self.columns = {one.name: one.kind for one in self._outputs}
        if len({name.lower() for name in self.columns}) != len(self._outputs):
            raise Unsupported("two columns of the same name")
        if sum(one.generates for one in self._outputs) > 1:
            raise AnalysisError("only one explode in a selection")
        self.schema = types.arrow_schema(self.columns)

    def _every(self, star: Star) -> list[Node]:
        if star.of is None or (isinstance(star.of, Column) and self._scope.is_alias(".".join(star.of.parts))):
            return [Column((name,)) for name in self._scope.columns]
        kind = compiled(star.of, self._scope).type
        if kind.name != "struct":
            raise AnalysisError(f".* works on a struct, not on {kind.text}")
        return [Alias(Call(".", (star.of, Literal(name, types.STRING))), name) for name in kind.names]

    def _output(self, node: Node) -> _Output:
        inner = node.node if isinstance(node, Alias) else node
        if isinstance(inner, Call) and inner.name in GENERATORS:
            if len(inner.arguments) != 1:
                raise AnalysisError(f"{inner.name}() takes one argument")
            given = compiled(inner.arguments[0], self._scope)
            if given.type.name != "array":
                raise Unsupported(f"{inner.name} of {given.type.text}")
            outer = GENERATORS[inner.name]
            return _Output(
                name_of(node) or "col", given.type.element, compiled=given, generates=True, outer=outer
            )
        if isinstance(inner, Column) and len(inner.parts) == 1:
            found = self._scope.find(inner.parts[0])
            if found is None:
                raise self._scope.missing(inner.parts[0])
            return _Output(str(name_of(node)), found[2], column=found[0])
        made = compiled(node, self._scope)
        return _Output(name_of(node) or title(node, made.type), made.type, compiled=made)

    def run(self, table: pa.Table) -> pa.Table:
        rows = self._rows(table)
        for work in self._scope.wholes:
            work(rows)
        if self._condition is not None:
            holds = self._condition.run
            kept = [at for at, row in enumerate(rows) if holds(row)]
            if len(kept) < table.num_rows:
                rows, table = [rows[at] for at in kept], table.take(pa.array(kept, pa.int64()))
        generator = next((one for one in self._outputs if one.generates), None)
        if generator is not None:
            rows, table, given = self._generated(generator, rows, table)
        arrays = []
        for one in self._outputs:
            if one.column is not None:
                arrays.append(table[one.column])
            elif one is generator:
                arrays.append(_array(given, one.kind))
            else:
                assert one.compiled is not None
                arrays.append(_array([one.compiled.run(row) for row in rows], one.kind))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _rows(self, table: pa.Table) -> list[list[Any]]:
        """Rows as compiled expressions take them. Columns that no expression uses are left empty."""
        rows: list[list[Any]] = [[None] * self._scope.width[0] for _ in range(table.num_rows)]
        for name, (at, kind) in self._scope.columns.items():
            if at in self._scope.used:
                for row, value in zip(rows, table[name].to_pylist(), strict=True):
                    row[at] = python_value(value, kind)
        return rows

    def _generated(
        self, generator: _Output, rows: list[list[Any]], table: pa.Table
    ) -> tuple[list[list[Any]], pa.Table, list[Any]]:
        """Every row repeated for each value that the generator gives for it, and those values."""
        assert generator.compiled is not None
        given: list[Any] = []
        of: list[int] = []
        for at, row in enumerate(rows):
            found = generator.compiled.run(row) or ([None] if generator.outer else [])
            given += found
            of += [at] * len(found)
        return [rows[at] for at in of], table.take(pa.array(of, pa.int64())), given


def _array(values: list[Any], kind: Type) -> pa.Array:
    try:
        return pa.array([arrow_value(value, kind) for value in values], types.to_arrow(kind))
    except UnicodeEncodeError:
        raise Unsupported("a column of text that is not UTF-8") from None


def _condition(condition: str | Node, scope: Scope) -> Compiled:
    node = parse(condition) if isinstance(condition, str) else condition
    made = compiled(node, scope)
    if made.type == types.STRING:
        made = converted(made, BOOLEAN)
    if made.type not in (BOOLEAN, types.VOID):
        raise AnalysisError(f"the condition is of type {made.type.text}, not boolean")
    return made


_NAMELESS = Unsupported("a column without a name (name it with AS)")
_SIGNS = {"+", "-", "*", "/", "%", "=", "<", "<=", ">", ">=", "<=>", "and", "or"}


def title(node: Node, kind: Type) -> str:
    """Spark's name for an unnamed column. Where that name is too odd to rely on, the column must be named."""
    if isinstance(node, Cast) and isinstance(node.node, Column):
        node = node.node
    if kind != BOOLEAN and not types.is_number(kind) and not isinstance(node, Column | Literal):
        raise _NAMELESS
    return _title(node)


def _title(node: Node) -> str:
    if isinstance(node, Literal):
        if node.value is None:
            return "NULL"
        if node.type == BOOLEAN:
            return str(node.value).lower()
        if node.type in types.INTEGERS or node.type.name in ("decimal", "string"):
            return str(node.value)
    if isinstance(node, Column) and len(node.parts) == 1:
        return node.parts[0]
    if isinstance(node, Call) and node.name in _SIGNS:
        left, right = node.arguments
        return f"({_title(left)} {node.name.upper()} {_title(right)})"
    raise _NAMELESS


# ---- values ------------------------------------------------------------------------------------------


def python_value(value: Any, kind: Type) -> Any:
    """A value that came from Arrow, with maps as dictionaries and times in UTC."""
    if value is None:
        return None
    if kind == types.TIMESTAMP:
        return value.astimezone(dt.UTC)
    if not kind.inner:
        return value
    if kind.name == "array":
        return [python_value(one, kind.element) for one in value]
    if kind.name == "map":
        pairs = value.items() if isinstance(value, dict) else value
        return {python_value(k, kind.inner[0]): python_value(v, kind.inner[1]) for k, v in pairs}
    return {
        name: python_value(value[name], inner) for name, inner in zip(kind.names, kind.inner, strict=True)
    }


def arrow_value(value: Any, kind: Type) -> Any:
    """The opposite of ``python_value``: a value for Arrow, with maps as pairs."""
    if value is None or not kind.inner:
        return value
    if kind.name == "array":
        return [arrow_value(one, kind.element) for one in value]
    if kind.name == "map":
        return [(k, arrow_value(v, kind.inner[1])) for k, v in value.items()]
    return {
        name: arrow_value(one, inner)
        for name, inner, one in zip(kind.names, kind.inner, value.values(), strict=True)
    }
