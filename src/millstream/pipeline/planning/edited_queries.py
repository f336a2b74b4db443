"""Decides which query of a checkpoint continues with which operators after the pipeline's file was edited.

Spark finds the state of a query only by the place of its operators in the query's plan. So the checkpoint
keeps those places: for every output of a query (outputs.py), the identities of the operators upstream of it,
and the sinks that its rows go to. An output that is found again goes
back to its query and its place, wherever it is in the file now. Stateful operators that no query has yet get
a query of their own, which begins where its sources say. Rows without state join a query that already reads
their topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.core.errors import ConfigError
from millstream.pipeline.dsl.graph import Stateful
from millstream.pipeline.dsl.windows.window import WindowNode
from millstream.pipeline.planning.outputs import Output, Route, distinct, states_of

Kept = Mapping[str, Any]  # what the checkpoint keeps of each query, by name
Group = tuple[str, str, list[Route]]  # a query to be made: its name, what its windows emit, its routes


def operators_of(output: Output) -> list[str]:
    """The identities of the stateful operators upstream of an output, in the order of Spark's plan."""
    return [_identity(state) for state in states_of(output)]


def operator_shape(operator: Stateful) -> dict[str, Any]:
    """The description of an operator that the checkpoint keeps, so that a later run can report changes."""
    return {
        "operator": operator.known_as,
        "engine": "Spark" if operator.native else "the kernel",
        "definition": operator.definition(),
        "of": operator.origins(),
    }


def cohorts(kept: Kept) -> Callable[[WindowNode], object]:
    """The key by which windows share state: those that shared it still do, new ones share with each other."""
    homes = {
        one: (name, place)
        for name, entry in kept.items()
        for place, output in enumerate(entry["outputs"])
        for one in output["operators"]
    }
    return lambda window: homes.get(_identity(window.state))


def continued(groups: Sequence[Group], kept: Kept) -> list[Group]:
    """The queries that a topology is divided into, first those that the checkpoint already has."""
    if not kept:
        return list(groups)
    routes = [route for _, _, group in groups for route in group]
    outputs = distinct([route.output for route in routes])
    places = _found_again(outputs, routes, kept)
    found: dict[str, list[tuple[int, Route]]] = {name: [] for name in kept}
    emits = {name: entry["mode"] for name, entry in kept.items()}
    for group, emit, own in groups:
        fresh = _fresh_name(group, kept)
        for route in own:
            name, place = places.get(id(route.output)) or (_beside(route, kept) or fresh, len(outputs))
            found.setdefault(name, []).append((place, route))
            emits.setdefault(name, emit)
    return [
        (name, emits[name], [route for _, route in sorted(given, key=lambda one: one[0])])
        for name, given in found.items()
        if given
    ]


def _found_again(
    outputs: Sequence[Output], routes: Sequence[Route], kept: Kept
) -> dict[int, tuple[str, int]]:
    """The query and the place of every output that the checkpoint has. Among equal outputs, an old place goes
    to the one whose rows go to the most of the same sinks."""
    keys = {id(output): operators_of(output) for output in outputs}
    sinks = {
        id(output): {route.sink.label for route in routes if route.output is output} for output in outputs
    }
    found: dict[int, tuple[str, int]] = {}
    for name, entry in kept.items():
        for place, old in enumerate(entry["outputs"]):
            same = {
                id(output): len(sinks[id(output)] & set(old["sinks"]))
                for output in outputs
                if id(output) not in found and keys[id(output)] == old["operators"]
            }
            if not old["operators"]:  # without state, an output is known only by its sinks
                same = {output: shared for output, shared in same.items() if shared}
            if same:
                found[max(same, key=lambda output: same[output])] = name, place
    return found


def _beside(route: Route, kept: Kept) -> str | None:
    """A query that already reads the topics of an route without state; None if there is none."""
    topics = {source.topic for source in route.sources}
    if route.states:
        return None
    return next((name for name, entry in kept.items() if topics <= set(entry["sources"])), None)


def _fresh_name(name: str, kept: Kept) -> str:
    number, fresh = 1, name
    while fresh in kept:
        number += 1
        fresh = f"{name}.{number}"
    return fresh


def reset(kept: dict[str, Any], names: Sequence[str], operators: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Give up the state of the operators with these names, in ``kept``. The operators that have the names
    in the file now (``operators`` are all of the file's) get their places. Returns the identities of
    those."""
    found: set[str] = set()
    for name in names:
        there = [
            (entry, one)
            for entry in kept.values()
            for one, shape in entry["operators"].items()
            if shape["operator"] == name
        ]
        now = [one for one, shape in operators.items() if shape["operator"] == name]
        if not there or not now:
            known = sorted(
                {shape["operator"] for entry in kept.values() for shape in entry["operators"].values()}
            )
            where = "file" if there else "checkpoint"
            raise ConfigError(
                f"--reset-operator {name}: the {where} has no stateful operator of that name. The"
                f" checkpoint's operators are {', '.join(known) or 'none'}"
            )
        for entry, old in there:
            if "Spark" in (entry["operators"][old]["engine"], operators[now[0]]["engine"]):
                raise ConfigError(
                    f"--reset-operator {name}: Spark itself computes this window, and can't discard the"
                    " state of one operator. Give a new directory with --checkpoint"
                )
            del entry["operators"][old]
            entry["operators"][now[0]] = dict(operators[now[0]])
            for output in entry["outputs"]:
                output["operators"] = [now[0] if one == old else one for one in output["operators"]]
            before = dict(entry.get("resets", {}))
            entry["resets"] = {**before, now[0]: before.pop(old, 0) + 1}
            found.add(now[0])
    return found


def _identity(operator: Stateful) -> str:
    """Spark's state of a window is not the kernel's."""
    return f"{operator.identity} on Spark" if operator.native else operator.identity
