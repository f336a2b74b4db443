"""Names the columns of a join's result: the keys once, then both sides' columns, then the result's own.

A column that both sides have is called ``left_NAME`` and ``right_NAME``. If a side is itself the result
of another operator, the columns that describe that result (its ``join_time``, its ``time_basis``) are
left out, because the join has its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.core.errors import TopologyError

JOIN_TIME, TIME_BASIS, DELETED, CHANGE_TIME = "join_time", "time_basis", "deleted", "change_time"
KeptColumns = list[tuple[str, str]]  # a column of a side, and its name in the result


def joined(
    keys: Sequence[str],
    left: Sequence[str],
    right: Sequence[str],
    own: Sequence[str],
    results: Sequence[bool] = (False, False),
) -> tuple[KeptColumns, KeptColumns]:
    """The columns of each side that the result has, with their names there. ``keys`` are the left's;
    ``left`` and ``right`` are the columns beside the keys; ``own`` are those that the result adds.
    ``results`` says which sides are themselves results."""
    lefts, rights = (
        [name for name in side if name not in own] if is_result else list(side)
        for side, is_result in zip((left, right), results, strict=True)
    )
    of_left = {name.lower() for name in lefts}
    both = of_left & {name.lower() for name in rights}
    taken = {name.lower() for name in keys}
    kept_left = [(name, f"left_{name}" if name.lower() in both else name) for name in lefts]
    kept_right = [
        (name, f"right_{name}" if name.lower() in both or name.lower() in taken else name) for name in rights
    ]
    seen: set[str] = set()
    for side, name in (*((key, key) for key in keys), *kept_left, *kept_right):
        if name.lower() in own:
            raise TopologyError(f"the result has a column {name!r} of its own: rename {side!r} first")
        if name.lower() in seen:
            raise TopologyError(
                f"the result would have two columns {name!r}: rename {side!r} on one side first"
            )
        seen.add(name.lower())
    return kept_left, kept_right
