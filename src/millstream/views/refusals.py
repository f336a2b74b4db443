"""What a database refuses to keep as a view, and the errors that say what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.core.errors import MillstreamError, TopologyError
from millstream.views.values import NESTED, base_of, has_order, is_key
from millstream.views.views import View


def check_key(view: View, known: Sequence[str], where: str, *, at: str | None) -> None:
    """Refuse a key other than the one that a view was created with."""
    if tuple(known) != view.key:
        raise TopologyError(
            f"view {view.name!r} in {where} has the key {', '.join(known)}, not {', '.join(view.key)}; give"
            f" the view another name, or remove it there with: millstream view drop {view.name}"
            f" --views {where}",
            where=at,
        )


def not_taken(view: View, row: Sequence[Any], column: str | None, reason: str, where: str) -> MillstreamError:
    """The error for a row that a database does not take: which row it is, and what can be done."""
    names = [name for name, _ in view.columns]
    key = ", ".join(f"{name}={_short(row[names.index(name)])}" for name in view.key)
    what = f"column {column!r} of " if column is not None else ""
    return MillstreamError(
        f"view {view.name!r} in {where} can't take {what}the row with {key}: {reason}. Nothing of the batch"
        " is in the views: change the column in a .select(...) in front of .to_view, or leave such rows out"
        " with .where(...), and start the job again"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


def check_owner(view: View, owner: str, where: str, *, at: str | None) -> None:
    """Refuse a view that another job keeps: each would overwrite the other's rows."""
    if view.job != owner:
        raise TopologyError(
            f"view {view.name!r} in {where} belongs to job {owner!r}, not to {view.job!r}; give the view"
            " another name, or keep this job's views elsewhere with --views. If the other job is gone for"
            f" good, remove its view with: millstream view drop {view.name} --views {where}",
            where=at,
        )


def other_type(
    view: View, column: str, there: str, wanted: str, where: str, *, at: str | None
) -> TopologyError:
    """The error for a column whose type is not the one it was created with."""
    return TopologyError(
        f"column {column!r} of view {view.name!r} in {where} is {there}, not {wanted}; give the view another"
        f" name, or remove it there with: millstream view drop {view.name} --views {where}",
        where=at,
    )


def check_types(view: View, *, at: str | None) -> None:
    """Refuse keys that can't be told apart, an order that the databases don't share with Spark, and
    indexes over values that have parts."""
    kinds = dict(view.columns)
    for column in view.key:
        if not is_key(kinds[column]):
            raise TopologyError(
                f"view {view.name!r}: the key {column!r} is {kinds[column]}, and maps can't be compared; give"
                " a plain column, to_json(...) of the map for example",
                where=at,
            )
    for column in dict.fromkeys(column for columns in view.indexes for column in columns):
        if base_of(kinds[column]) in NESTED:
            raise TopologyError(
                f"view {view.name!r}: index={column!r} is {kinds[column]}, and an index is over plain values;"
                " take what you look for out of it into a column, with .select(...)",
                where=at,
            )
    if view.order is not None and not has_order(kinds[view.order]):
        raise TopologyError(
            f"view {view.name!r}: order={view.order!r} is {kinds[view.order]}, and the databases order those"
            " differently from Spark; give a number, text, bytes, a date or a time",
            where=at,
        )
