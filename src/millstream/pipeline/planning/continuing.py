"""Decides which query of a checkpoint goes on with which operators after the pipeline's file was edited.

Spark finds the state of a query only by the place of its operators in the query's plan. So the checkpoint
keeps those places: for every *tap* of a query (taps.py), the identities of the operators upstream of it,
and the sinks that its rows go to. A tap that is found again goes back to its query and its place, wherever
it is in the file now. Stateful operators that no query has yet get a query of their own, which begins where
its sources say. Rows without state join a query that already reads their topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.core.errors import ConfigError
from millstream.pipeline.dsl.windows import Aggregate
from millstream.pipeline.planning.identity import definition, identity, origins
from millstream.pipeline.planning.outputs import Arm, State, Tap, distinct, tap_states

Kept = Mapping[str, Any]  # what the checkpoint keeps of each query, by name
Group = tuple[str, str, list[Arm]]  # a query to be made: its name, what its windows emit, and its arms


def tap_operators(tap: Tap) -> list[str]:
    """The identities of the stateful operators upstream of a tap, in the order of Spark's plan."""
    return [_identity(state) for state in tap_states(tap)]


def operator_shape(state: State) -> dict[str, Any]:
    """What the checkpoint keeps of an operator, so that a later run can say what changed about it."""
    native = isinstance(state, Aggregate)
    operator = state.stateful if isinstance(state, Aggregate) else state
    return {
        "operator": state.known_as,
        "engine": "Spark" if native else "the kernel",
        "definition": definition(operator),
        "of": origins(operator),
    }


def cohorts(kept: Kept) -> Callable[[Aggregate], object]:
    """The key by which windows share state: those that shared it still do, new ones share with each other."""
    homes = {
        one: (name, place)
        for name, entry in kept.items()
        for place, tap in enumerate(entry["taps"])
        for one in tap["operators"]
    }
    return lambda window: homes.get(_identity(window))


def continued(groups: Sequence[Group], kept: Kept) -> list[Group]:
    """The queries that a topology is divided into, first those that the checkpoint already has."""
    if not kept:
        return list(groups)
    arms = [arm for _, _, group in groups for arm in group]
    taps = distinct([arm.base for arm in arms])
    places = _found_again(taps, arms, kept)
    found: dict[str, list[tuple[int, Arm]]] = {name: [] for name in kept}
    emits = {name: entry["mode"] for name, entry in kept.items()}
    for group, emit, own in groups:
        fresh = _fresh_name(group, kept)
        for arm in own:
            name, place = places.get(id(arm.base)) or (_beside(arm, kept) or fresh, len(taps))
            found.setdefault(name, []).append((place, arm))
            emits.setdefault(name, emit)
    return [
        (name, emits[name], [arm for _, arm in sorted(given, key=lambda one: one[0])])
        for name, given in found.items()
        if given
    ]


def _found_again(taps: Sequence[Tap], arms: Sequence[Arm], kept: Kept) -> dict[int, tuple[str, int]]:
    """The query and the place of every tap that the checkpoint has. Among equal taps, an old place goes to
    the one whose rows go to the most of the same sinks."""
    keys = {id(tap): tap_operators(tap) for tap in taps}
    sinks = {id(tap): {arm.sink.label for arm in arms if arm.base is tap} for tap in taps}
    found: dict[int, tuple[str, int]] = {}
    for name, entry in kept.items():
        for place, old in enumerate(entry["taps"]):
            same = {
                id(tap): len(sinks[id(tap)] & set(old["sinks"]))
                for tap in taps
                if id(tap) not in found and keys[id(tap)] == old["operators"]
            }
            if not old["operators"]:  # without state, a tap is known only by its sinks
                same = {tap: shared for tap, shared in same.items() if shared}
            if same:
                found[max(same, key=lambda tap: same[tap])] = name, place
    return found


def _beside(arm: Arm, kept: Kept) -> str | None:
    """A query that already reads the topics of an arm without state; None if there is none."""
    topics = {source.topic for source in arm.sources}
    if arm.states:
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
                f"--reset-operator {name}: the {where} has no stateful operator of that name."
                f" The checkpoint has {', '.join(known) or 'none'}"
            )
        for entry, old in there:
            if "Spark" in (entry["operators"][old]["engine"], operators[now[0]]["engine"]):
                raise ConfigError(
                    f"--reset-operator {name}: Spark itself works this window out, and can't forget the state"
                    " of one operator. Give a new directory with --checkpoint"
                )
            del entry["operators"][old]
            entry["operators"][now[0]] = dict(operators[now[0]])
            for tap in entry["taps"]:
                tap["operators"] = [now[0] if one == old else one for one in tap["operators"]]
            before = dict(entry.get("resets", {}))
            entry["resets"] = {**before, now[0]: before.pop(old, 0) + 1}
            found.add(now[0])
    return found


def _identity(state: State) -> str:
    if isinstance(state, Aggregate):  # a window of Spark's own: its state is not the kernel's
        return f"{identity(state.stateful)} on Spark"
    return identity(state)
