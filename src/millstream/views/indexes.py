"""The secondary indexes of views: their names, and the SQL that finds, creates and drops them.

An index is known by its name, which says which columns of which view it has. So what a database has and what
a view should have are compared without any record of it, and indexes that people have made by hand are left
alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from millstream.views.naming import quoted_name, quoted_text
from millstream.views.views import View

_PREFIX = "millstream_index_"
_OURS = "LIKE 'millstream!_index!_%' ESCAPE '!'"


def index_name(view: str, columns: Sequence[str]) -> str:
    """A hash, because PostgreSQL truncates names at 63 bytes."""
    return _PREFIX + hashlib.sha256(json.dumps([view, list(columns)]).encode()).hexdigest()[:32]


def sqlite_indexes(view: str) -> str:
    """The SELECT of a view's indexes: name and column, in the columns' order."""
    return (
        f"SELECT l.name, i.name FROM pragma_index_list({quoted_text(view)}) l, pragma_index_info(l.name) i"
        f" WHERE l.name {_OURS} ORDER BY l.name, i.seqno"
    )


def postgres_indexes(view: str) -> str:
    """The same for PostgreSQL."""
    return (
        "SELECT c.relname, a.attname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid"
        " CROSS JOIN LATERAL unnest(x.indkey) WITH ORDINALITY AS k (attnum, place)"
        " JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum"
        f" WHERE x.indrelid = to_regclass({quoted_text(quoted_name(view))}) AND c.relname {_OURS}"
        " ORDER BY c.relname, k.place"
    )


def by_name(rows: Iterable[Sequence[Any]]) -> dict[str, tuple[str, ...]]:
    """The columns of each index, from the rows of one of these SELECTs."""
    found: dict[str, tuple[str, ...]] = {}
    for name, column in rows:
        found[name] = (*found.get(name, ()), column)
    return found


def changes(view: View, there: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The SQL that gives a view the indexes that it should have."""
    wanted = {index_name(view.name, columns): columns for columns in view.indexes}
    for name in there:
        if name not in wanted:
            yield f"DROP INDEX {quoted_name(name)}"
    for name, columns in wanted.items():
        if name not in there:
            listed = ", ".join(map(quoted_name, columns))
            yield f"CREATE INDEX {quoted_name(name)} ON {quoted_name(view.name)} ({listed})"
