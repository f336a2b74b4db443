"""The views that pipelines keep: the list, rows by page, one row with its history, and SQL."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from millstream.core.errors import ConfigError
from millstream.views.naming import quoted_name, quoted_text
from millstream.views.query import QueryLimits, QueryRefused, RunQuery
from millstream.views.values import COLLATION, EXACT
from millstream.views.views import ViewDescription, ViewReader
from millstream.views.watching import Kind, changes_of

PER_PAGE = 50
COUNTING = 1.0  # seconds; a row count that takes longer is left out
Value = bool | float | str | None  # float covers whole numbers too: a JSON schema can't have both
Order = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class ViewState:
    """A view. ``rows`` is None if counting them would take too long. ``changed_ms``, ``query`` and ``batch``
    describe the last change; None if it is no longer kept, or there was none. ``job`` is the pipeline that
    writes the view, if known.
    """

    name: str
    database: str
    key: list[str]
    columns: list[Column]
    version: int
    rows: int | None
    changed_ms: int | None
    query: str | None
    batch: int | None
    job: str | None


@dataclass(frozen=True, slots=True)
class Database:
    """A database of views. ``problem`` says why they can't be shown."""

    name: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ViewList:
    views: list[ViewState]
    databases: list[Database]


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows are requested. Every word of ``search`` must be in one of the columns. ``where`` is an SQL
    condition. ``sort`` is a column; empty means the key.
    """

    search: str = ""
    where: str = ""
    sort: str = ""
    order: Order = "asc"
    page: int = 1
    per_page: int = PER_PAGE


@dataclass(frozen=True, slots=True)
class RowPage:
    """One page of rows. ``found`` counts the rows on all pages, None if that would take too long. ``more`` is
    true if another page follows. ``query`` is the request, with the number of the page shown.
    """

    view: ViewState
    rows: list[list[Value]]
    found: int | None
    more: bool
    query: RowQuery


@dataclass(frozen=True, slots=True)
class RowChange:
    """What a batch did to a row. ``row`` is the row after it, None if it was deleted. ``changed`` lists the
    columns whose values changed.
    """

    kind: Kind
    version: int
    at_ms: int | None
    query: str | None
    batch: int | None
    changed: list[str]
    row: dict[str, Value] | None


@dataclass(frozen=True, slots=True)
class Row:
    """One row, None if it is gone, and its changes as far back as they are kept (at most the newest 100), the
    newest first.
    """

    view: ViewState
    key: list[str]
    row: dict[str, Value] | None
    changes: list[RowChange]


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The result of SQL. ``cut`` is the limit at which it was cut off, None if it is complete."""

    database: str
    columns: list[str]
    rows: list[list[Value]]
    cut: Literal["rows", "bytes"] | None
    took_ms: float


# The list ------------------------------------------------------------------------------------------------

Jobs = Mapping[str, str]  # the job that writes each view of a database


def views_of(reader: ViewReader, jobs: Jobs, *, counted: bool = True) -> list[ViewState]:
    """The views of a database, with their number of rows if ``counted``."""
    return [
        _state(reader, each, jobs, _count(reader, each.name) if counted else None)
        for each in reader.described()
    ]


def _state(reader: ViewReader, view: ViewDescription, jobs: Jobs, rows: int | None) -> ViewState:
    return ViewState(
        view.name,
        reader.where,
        list(view.key),
        [Column(name, kind.lower()) for name, kind in view.columns],
        view.version,
        rows,
        view.at_ms,
        view.query,
        view.batch,
        jobs.get(view.name),
    )


def _count(reader: ViewReader, name: str) -> int | None:
    try:
        with reader.asking(QueryLimits(seconds=COUNTING), ours=True) as ask:
            return _number(ask, f"SELECT count(*) FROM {quoted_name(name)}")
    except QueryRefused:
        return None


def _number(ask: RunQuery, sql: str) -> int:
    ((number,),) = ask(sql).rows
    return int(number)


def found_view(reader: ViewReader, name: str) -> ViewDescription | None:
    return next((each for each in reader.described() if each.name == name), None)


# Rows ----------------------------------------------------------------------------------------------------


def rows_of(
    reader: ViewReader, name: str, query: RowQuery, jobs: Jobs, limits: QueryLimits | None = None
) -> RowPage | None:
    """One page of a view's rows. A page number beyond the last means the last. None if there is no such view.
    Raises ConfigError for a column that does not exist, and QueryRefused for a condition that is not valid.
    """
    view = found_view(reader, name)
    if view is None:
        return None
    columns = [column for column, _ in view.columns]
    if query.sort and query.sort not in columns:
        raise ConfigError(
            f"view {name!r} has no column {query.sort!r} to sort by; it has {', '.join(columns)}"
        )
    condition = _condition(columns, query)
    limits = replace(limits or QueryLimits(), rows=query.per_page + 1)
    source = f"FROM {quoted_name(name)}{condition}"
    before_it = len(f"SELECT * FROM {quoted_name(name)} WHERE (\n")
    ours = not query.where.strip()
    with _about(query.where, before_it), reader.asking(limits, ours=ours) as ask:
        rows = ask(_select(view, source, query)).rows
        if not rows and query.page > 1:
            last = max(1, -(-_number(ask, f"SELECT count(*) {source}") // query.per_page))
            query = replace(query, page=last)
            rows = ask(_select(view, source, query)).rows
        more = len(rows) > query.per_page
        found: int | None = (query.page - 1) * query.per_page + len(rows)
        if more:
            found = _quickly(lambda: _number(ask, f"SELECT count(*) {source}"))
    state = _state(reader, view, jobs, found if not condition else None)
    shown = [[plain(value) for value in row] for row in rows[: query.per_page]]
    return RowPage(state, shown, found, more, query)


def _select(view: ViewDescription, source: str, query: RowQuery) -> str:
    order = [quoted_name(column) for column in view.key]
    if query.sort:
        # SQLite keeps large decimals as text, which needs a collation to sort as numbers.
        exact = dict(view.columns).get(query.sort, "").startswith(EXACT)
        collation = f" COLLATE {COLLATION}" if exact else ""
        order.insert(0, f"{quoted_name(query.sort)}{collation} {query.order.upper()} NULLS LAST")
    elif query.order == "desc":
        order = [f"{column} DESC" for column in order]
    return (
        f"SELECT * {source} ORDER BY {', '.join(order)}"
        f" LIMIT {query.per_page + 1} OFFSET {(query.page - 1) * query.per_page}"
    )


def _condition(columns: Sequence[str], query: RowQuery) -> str:
    parts = []
    if query.where.strip():
        parts.append(f"(\n{query.where}\n)")  # on separate lines, because it may end in a comment
    if "\0" in query.search:
        raise QueryRefused("a search can't contain the null character", query.search)
    for word in query.search.lower().split():
        pattern = "".join(f"!{sign}" if sign in "%_!" else sign for sign in word)
        like = f"LIKE {quoted_text(f'%{pattern}%')} ESCAPE '!'"
        parts.append(
            "(" + " OR ".join(f"lower(CAST({quoted_name(c)} AS text)) {like}" for c in columns) + ")"
        )
    return f" WHERE {' AND '.join(parts)}" if parts else ""


@contextmanager
def _about(condition: str, before: int) -> Iterator[None]:
    """Turn an error in the generated SQL into one in the user's condition, with the position in it."""
    try:
        yield
    except QueryRefused as error:
        if not condition:
            raise
        at = None if error.at is None else error.at - before
        within = at if at is not None and 0 <= at <= len(condition) else None
        raise QueryRefused(error.reason, condition, within) from None


def _quickly(count: Callable[[], int]) -> int | None:
    try:
        return count()
    except QueryRefused:
        return None


def differences(before: RowPage | None, now: RowPage) -> list[frozenset[int]]:
    """For each row of a page, the columns that changed since the page was last shown; all columns if the row
    was not on it.
    """
    columns = [column.name for column in now.view.columns]
    if before is None or columns != [column.name for column in before.view.columns]:
        return [frozenset()] * len(now.rows)
    at = [columns.index(name) for name in now.view.key]
    known = {tuple(row[i] for i in at): row for row in before.rows}
    found = []
    for row in now.rows:
        old = known.get(tuple(row[i] for i in at))
        found.append(frozenset(i for i in range(len(row)) if old is None or row[i] != old[i]))
    return found


# One row ---------------------------------------------------------------------------------------------------


def row_of(reader: ViewReader, name: str, key: Sequence[str], jobs: Jobs, newest: int = 100) -> Row | None:
    """A row by its key, with its changes. None if there is no such view, or if no such row is there or in the
    changes that are kept. Raises ConfigError for a key with a different number of columns.
    """
    view = found_view(reader, name)
    if view is None:
        return None
    if len(key) != len(view.key):
        raise ConfigError(
            f"view {name!r} has the key {', '.join(view.key)}: give a value of each, in this order"
        )
    condition = reader.key_condition(name, key)
    with reader.asking(QueryLimits(), ours=True) as ask:
        found = ask(f"SELECT * FROM {quoted_name(name)} WHERE {condition}")
    since = reader.since(name, reader.present(name, "1 = 0").floor, condition)
    changes = [
        RowChange(
            change.kind,
            change.version,
            change.at_ms,
            change.query,
            change.batch,
            [c for c in since.columns if (change.old or {}).get(c) != (change.new or {}).get(c)],
            None if change.new is None else {name: plain(value) for name, value in change.new.items()},
        )
        for change in changes_of(since)
    ]
    if not found.rows and not changes:
        return None
    row = dict(zip(found.columns, map(plain, found.rows[0]), strict=True)) if found.rows else None
    return Row(_state(reader, view, jobs, None), list(key), row, changes[::-1][:newest])


# SQL -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sql:
    """A request to run SQL. ``database`` may be left out if there is only one."""

    sql: str
    database: str = ""
    rows: int = field(default=QueryLimits().rows)


def run_sql(reader: ViewReader, sql: str, limits: QueryLimits) -> SqlResult:
    """Run SQL that only reads. Raises QueryRefused."""
    began = time.monotonic()
    with reader.asking(limits) as ask:
        answer = ask(sql)
    took = 1000 * (time.monotonic() - began)
    rows = [[plain(value) for value in row] for row in answer.rows]
    return SqlResult(reader.where, answer.columns, rows, answer.cut, round(took, 1))


def plain(value: Any) -> Value:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def column_digits(rows: Sequence[Sequence[Value]], count: int) -> list[int | None]:
    """For each column, how many decimals its numbers are shown with, so that they align. None for a column
    that holds anything but numbers.
    """
    return [_digits([row[i] for row in rows if row[i] is not None]) for i in range(count)]


def _digits(values: list[Value]) -> int | None:
    if not values or any(isinstance(value, bool | str) for value in values):
        return None
    after = (f"{value:.10g}".partition(".")[2] for value in values if isinstance(value, float))
    return min(6, max((len(digits) for digits in after if "e" not in digits), default=0))
