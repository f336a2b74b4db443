"""Open the database that holds views. Only the kind of database that is needed is loaded."""

from __future__ import annotations

from pathlib import Path

from millstream.core.extras import extra
from millstream.views.address import is_url
from millstream.views.views import ViewReader, ViewStore


def open_store(where: str | Path) -> ViewStore:
    """The store for the views in a file, or in the database that a URL names."""
    if is_url(where):
        from millstream.views.postgres import PostgresStore

        with extra("postgres", ("psycopg",), "views in PostgreSQL need"):
            return PostgresStore(str(where))
    from millstream.views.sqlite import SqliteStore

    return SqliteStore(Path(where))


def open_reader(where: str | Path) -> ViewReader:
    """A reader for the views in a file, or in the database that a URL names."""
    if is_url(where):
        from millstream.views.postgres import PostgresReader

        with extra("postgres", ("psycopg",), "views in PostgreSQL need"):
            return PostgresReader(str(where))
    from millstream.views.sqlite import SqliteReader

    return SqliteReader(Path(where))
