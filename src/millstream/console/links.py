"""The paths of the console's pages, for links between screens."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote, urlencode


def topic_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("topics", name, part, query)


def group_link(name: str, part: str = "", **query: str | int) -> str:
    """A group may have any name. A server unquotes a path before it is split at its slashes, so slashes in
    the name are quoted twice. ``group_named`` undoes that.
    """
    return _link("groups", name.replace("%", "%25").replace("/", "%2F"), part, query)


def group_named(part: str) -> str:
    """The name of a group, from its part of a path."""
    return unquote(part)


def partition_anchor(topic: str, partition: int) -> str:
    """The anchor of a partition on a page of many."""
    return f"{topic}-{partition}"


def pipeline_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("pipelines", name, part, query)


def view_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("views", name, part, query)


def row_link(view: str, key: Sequence[object], database: str = "") -> str:
    """One row of a view, by the values of its key."""
    query = [("key", str(value)) for value in key] + ([("database", database)] if database else [])
    return f"{view_link(view, 'row')}?{urlencode(query)}"


def sql_link(sql: str, database: str = "") -> str:
    """The SQL page, with a query filled in."""
    return f"/sql?{urlencode({'sql': sql, **({'database': database} if database else {})})}"


def _link(kind: str, name: str, part: str, query: dict[str, str | int]) -> str:
    path = f"/{kind}/{quote(name, safe='')}" + (f"/{part}" if part else "")
    return f"{path}?{urlencode(query)}" if query else path
