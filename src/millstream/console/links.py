"""Where things are in the console: one place for the paths that screens link to."""

from __future__ import annotations

from urllib.parse import quote, urlencode


def topic_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("topics", name, part, query)


def group_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("groups", name, part, query)


def pipeline_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("pipelines", name, part, query)


def view_link(name: str, part: str = "", **query: str | int) -> str:
    return _link("views", name, part, query)


def _link(kind: str, name: str, part: str, query: dict[str, str | int]) -> str:
    path = f"/{kind}/{quote(name, safe='')}" + (f"/{part}" if part else "")
    return f"{path}?{urlencode(query)}" if query else path
