"""Identifies stateful operators, so that their state is found again after the file was edited.

An operator that was given a name is known by its name. Any other is known by its definition: its kind, where
its rows come from, its keys, conditions and aggregates, a processor's class. None of this depends on where in
the file the operator is, on the variable that holds it, or on what is done with its results.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from millstream.pipeline.dsl.expressions import without_spaces
from millstream.pipeline.dsl.stateful import Stateful, StatefulChannel
from millstream.pipeline.dsl.streams import (
    Operator,
    Otherwise,
    Rejected,
    Select,
    Source,
    SplitChannel,
    Stream,
    Union,
    Where,
)
from millstream.pipeline.dsl.windows import WindowState

_NAMED = "named "


def identity(operator: Stateful) -> str:
    """The identity under which an operator's state is kept."""
    assert operator.main is not None
    if operator.main.given_name is not None:
        return _NAMED + operator.main.given_name
    # A processor may migrate state of another version. That is checked when the state is found.
    made = {part: what for part, what in definition(operator).items() if part not in ("version", "migrates")}
    return _digest({"definition": made, "of": origins(operator)})


def is_named(identity: str) -> bool:
    return identity.startswith(_NAMED)


def definition(operator: Stateful) -> dict[str, Any]:
    """What an operator's state depends on, apart from the operator's name."""
    assert operator.main is not None
    made: dict[str, Any] = {
        "kind": operator.main.kind,
        "keys": [[without_spaces(key) for key in one.by] for one in operator.inputs],
    }
    if isinstance(operator, WindowState):
        # The plan of a window is the kernel's; the definition must not depend on the engine that computes it.
        return made | operator.window_shape()
    return made | dict(operator.plan.shape())


def origins(operator: Stateful) -> list[Any]:
    """Where the rows of an operator's inputs come from, and what is done with them on the way."""
    if isinstance(operator, WindowState):  # the columns it takes are those of its aggregates
        return [_origin(one.stream) for one in operator.inputs]
    return [
        [
            _origin(one.stream),
            None if one.columns is None else [without_spaces(column) for column in one.columns],
        ]
        for one in operator.inputs
    ]


def source_identity(source: Source) -> str:
    """What distinguishes a source from others: its topic, how it is read, and the time it goes by."""
    return _digest(_origin(source))


def _origin(stream: Stream) -> Any:
    if isinstance(stream, Source):
        time = None if stream.time is None else [stream.time.kind, stream.time.column]
        table = None if stream.table is None else [list(stream.table.key), stream.table.delete_when]
        return {"source": stream.topic, "format": stream.format, "time": time, "table": table}
    if isinstance(stream, StatefulChannel):
        return {"channel": stream.channel_name, "of": identity(stream.stateful)}
    above = [_origin(one) for one in stream.inputs]
    if isinstance(stream, Select):
        return {"select": [without_spaces(one) for one in stream.expressions], "of": above}
    if isinstance(stream, Where):
        return {"where": without_spaces(stream.condition), "of": above}
    if isinstance(stream, Otherwise):
        return {"otherwise": sorted(without_spaces(one) for one in stream.conditions), "of": above}
    if isinstance(stream, Union):
        return {"union": above, "tag": stream.tag}
    if isinstance(stream, Operator):
        return {"operator": stream.function.__name__, "of": above}
    if isinstance(stream, SplitChannel):
        return {"channel": stream.channel_name, "of": above}
    assert isinstance(stream, Rejected), stream
    return {"rejected": above}


def _digest(made: Any) -> str:
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
