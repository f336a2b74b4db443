"""Turns the rows that a batch gives back into changes of its views."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.pipeline.kernel.python_values import values_of
from millstream.pipeline.planning.sink_columns import SINK, view_column
from millstream.views.refusals import not_taken
from millstream.views.views import Changes, View


def changes_of_sink(sink: int, view: View, rows: pa.Table) -> Changes:
    """The changes of a view, by the number of its sink, among all rows of a batch."""
    names = [view_column(sink, at) for at in range(len(view.columns) + 1)]
    return changes_of(view, rows.filter(pc.equal(rows[SINK], sink)).select(names))


def changes_of(view: View, rows: pa.Table) -> Changes:
    """A view's rows as changes. The last column says whether a row deletes."""
    try:
        *values, deleted = map(values_of, rows.columns)
    except (UnicodeDecodeError, OverflowError, ValueError) as error:
        _find_untaken(view, rows)
        raise error
    return Changes(view, list(zip(*values, strict=True)), deleted)


def _find_untaken(view: View, rows: pa.Table) -> None:
    """Raise an error that names the first value that Python can't represent: text that is not UTF-8 (Spark
    makes it from bytes), or a time outside of the years 1 to 9999."""
    for at in range(rows.num_rows):
        row: list[Any] = []
        wrong: tuple[str, str] | None = None
        for (name, _), column in zip(view.columns, rows.columns, strict=False):
            try:
                row += values_of(column.slice(at, 1))
            except (UnicodeDecodeError, OverflowError, ValueError) as error:
                row.append("?")
                wrong = wrong or (name, str(error))
        if wrong is not None:
            raise not_taken(view, row, *wrong, "its database")
