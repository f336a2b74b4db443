"""Checks that the rows kept in operators' state still fit the columns that the operators take now.

Rows that wait in state have the columns of the run that put them there, so a checkpoint keeps those columns.
Columns may be added or removed, and a type may become one that holds every value of the old type: rows are
converted when they are read (kernel/state/fitting.py). Other changes are refused here, before a query is
started.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import pyarrow as pa

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.graph import Stateful
from millstream.pipeline.kernel.channels import HIDDEN
from millstream.pipeline.kernel.program import by_position
from millstream.pipeline.kernel.state.fitting import unfit

Inputs = Mapping[str, tuple[Stateful, tuple[pa.Schema, ...]]]  # by identity


def to_text(schemas: Sequence[pa.Schema]) -> list[str]:
    """Schemas in the form in which a checkpoint keeps them."""
    return [base64.b64encode(schema.serialize().to_pybytes()).decode() for schema in schemas]


def check_columns(kept: Mapping[str, Sequence[str]], now: Inputs, checkpoint: str) -> None:
    """Refuse operators whose state has rows that no longer fit."""
    for name, (operator, schemas) in now.items():
        if name not in kept:
            continue
        positional = by_position(operator.plan)
        found = []
        for number, (text, schema) in enumerate(zip(kept[name], schemas, strict=True)):
            old = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
            keys = len(operator.inputs[number].by)
            if not operator.keeps_rows:
                old, schema = _kept(old, keys), _kept(schema, keys)
            found += unfit(old, schema, keys, by_position=number in positional)
        if found:
            raise TopologyError(
                f"the checkpoint {checkpoint} can't be continued: {operator.known_as!r} keeps rows with"
                " other columns than it receives now\n"
                + "\n".join(f"  - {line}" for line in found)
                + "\nChange the schema back; or discard the operator's state, with --reset-operator"
                f" {operator.known_as}; or give a new directory with --checkpoint",
                where=operator.at,
            )


def _kept(schema: pa.Schema, keys: int) -> pa.Schema:
    own = list(schema)
    return pa.schema([*own[:keys], *(field for field in own[keys:] if field.name.startswith(HIDDEN))])
