"""SQL functions that take lambdas, whose bodies are compiled when the types of their variables are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Compiled, Scope, check_count
from millstream.pipeline.sql.nested import distinct, needs
from millstream.pipeline.sql.nodes import AnalysisError, Call, Lambda, Node
from millstream.pipeline.sql.types import BOOLEAN, INT, VOID, Type

Compile = Callable[[Node, Scope], Compiled]


def _lambda(
    node: Node, kinds: list[Type], scope: Scope, compile_: Compile, name: str
) -> tuple[Compiled, Callable[..., Any]]:
    """The compiled body of a lambda, and a function that runs it on a row and the values of its variables."""
    if not isinstance(node, Lambda):
        raise AnalysisError(f"{name} needs a lambda here: x -> ...")
    if len(node.names) > len(kinds):
        raise AnalysisError(f"the lambda of {name} has at most {len(kinds)} variables")
    inner, places = scope.inner(node.names, kinds[: len(node.names)])
    body = compile_(node.body, inner)

    def call(row: list[Any], *values: Any) -> Any:
        for place, value in zip(places, values, strict=False):
            row[place] = value
        return body.run(row)

    return body, call


def _over_array(
    name: str, call: Call, scope: Scope, compile_: Compile, *, truth: bool = False
) -> tuple[Compiled, Compiled, Callable[..., Any]]:
    check_count(name, call.arguments, 2, 2)
    subject = compile_(call.arguments[0], scope)
    kind = needs(name, subject, "array")
    body, function = _lambda(call.arguments[1], [kind.element, INT], scope, compile_, name)
    if truth and body.type not in (BOOLEAN, VOID):
        raise AnalysisError(f"the lambda of {name} must return a boolean, not {body.type.text}")
    return subject, body, function


def _transform(call: Call, scope: Scope, compile_: Compile) -> Compiled:
    subject, body, function = _over_array("transform", call, scope, compile_)

    def run(row: list[Any]) -> Any:
        value = subject.run(row)
        return None if value is None else [function(row, one, at) for at, one in enumerate(value)]

    return Compiled(types.array(body.type), run)


def _filter(call: Call, scope: Scope, compile_: Compile) -> Compiled:
    subject, _, function = _over_array("filter", call, scope, compile_, truth=True)

    def run(row: list[Any]) -> Any:
        value = subject.run(row)
        return None if value is None else [one for at, one in enumerate(value) if function(row, one, at)]

    return Compiled(subject.type, run)


def _quantified(name: str, decides: bool) -> Callable[[Call, Scope, Compile], Compiled]:
    """``exists`` is decided by one true result, ``forall`` by one false result."""

    def build(call: Call, scope: Scope, compile_: Compile) -> Compiled:
        subject, _, function = _over_array(name, call, scope, compile_, truth=True)

        def run(row: list[Any]) -> bool | None:
            value = subject.run(row)
            if value is None:
                return None
            said = [function(row, one) for one in value]
            return decides if decides in said else None if None in said else not decides

        return Compiled(BOOLEAN, run)

    return build


def _aggregate(call: Call, scope: Scope, compile_: Compile) -> Compiled:
    check_count(call.name, call.arguments, 3, 4)
    subject, start = compile_(call.arguments[0], scope), compile_(call.arguments[1], scope)
    kind = needs(call.name, subject, "array")
    body, merge = _lambda(call.arguments[2], [start.type, kind.element], scope, compile_, call.name)
    if body.type != start.type:
        raise AnalysisError(
            f"aggregate starts with {start.type.text} and continues with {body.type.text}; cast one of them"
        )
    result: Compiled = body
    finish: Callable[..., Any] = lambda row, value: value  # noqa: E731
    if len(call.arguments) == 4:
        result, finish = _lambda(call.arguments[3], [start.type], scope, compile_, call.name)

    def run(row: list[Any]) -> Any:
        value = subject.run(row)
        if value is None:
            return None
        so_far = start.run(row)
        for one in value:
            so_far = merge(row, so_far, one)
        return finish(row, so_far)

    return Compiled(result.type, run)


def _over_map(of: str) -> Callable[[Call, Scope, Compile], Compiled]:
    def build(call: Call, scope: Scope, compile_: Compile) -> Compiled:
        check_count(call.name, call.arguments, 2, 2)
        subject = compile_(call.arguments[0], scope)
        kind = needs(call.name, subject, "map")
        body, function = _lambda(call.arguments[1], list(kind.inner), scope, compile_, call.name)

        def run(row: list[Any]) -> Any:
            value = subject.run(row)
            if value is None:
                return None
            if of == "filter":
                return {key: one for key, one in value.items() if function(row, key, one)}
            if of == "values":
                return {key: function(row, key, one) for key, one in value.items()}
            return distinct([(function(row, key, one), one) for key, one in value.items()])

        result = {
            "filter": kind,
            "values": types.mapping(kind.inner[0], body.type),
            "keys": types.mapping(body.type, kind.inner[1]),
        }[of]
        return Compiled(result, run)

    return build


WITH_LAMBDAS: dict[str, Callable[[Call, Scope, Compile], Compiled]] = {
    "transform": _transform,
    "filter": _filter,
    "exists": _quantified("exists", True),
    "forall": _quantified("forall", False),
    "aggregate": _aggregate,
    "reduce": _aggregate,
    "map_filter": _over_map("filter"),
    "transform_values": _over_map("values"),
    "transform_keys": _over_map("keys"),
}
