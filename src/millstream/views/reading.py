"""Reads views in SQL: which there are, the rows of one, and what changed in it after a version."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from millstream.core.errors import MillstreamError
from millstream.views.merge_sql import PART, VERSION
from millstream.views.naming import beside, is_ours, quoted_name, quoted_text
from millstream.views.views import ChangesSince, ViewContents, ViewDescription


class SqlReader(ABC):
    """What both kinds of database read in the same way."""

    where: str

    @property
    def lost(self) -> bool:
        """True if the database has gone away, which a file does not."""
        return False

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[None]:
        """A transaction that sees one snapshot."""

    @abstractmethod
    def _found(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows of one statement."""

    @abstractmethod
    def _columns(self, table: str) -> dict[str, str]:
        """The columns of a table and their types, in order."""

    def described(self) -> list[ViewDescription]:
        """Every view, without its rows."""
        with self._snapshot():
            _, found = self._found(
                "SELECT v.name, v.key_columns, v.version, n.at_ms, n.query, n.batch"
                " FROM millstream_views v LEFT JOIN millstream_versions n"
                " ON n.view = v.name AND n.version = v.version ORDER BY v.name"
            )
            return [
                ViewDescription(name, tuple(json.loads(key)), list(self._columns(name).items()), *rest)
                for name, key, *rest in found
                if not is_ours(name)
            ]

    def versions(self) -> dict[str, int]:
        """The current version of each view."""
        with self._snapshot():
            _, found = self._found("SELECT name, version FROM millstream_views")
            return {name: version for name, version in found if not is_ours(name)}

    def check_condition(self, name: str, condition: str) -> None:
        """Refuse an invalid condition. It is tried alone here, so that the database's error is only about
        what its author has written."""
        with self._snapshot():
            self._view(name)
        try:
            with self._snapshot():
                self._found(f"EXPLAIN SELECT * FROM {quoted_name(name)} WHERE {condition}")
        except MillstreamError as error:
            raise MillstreamError(f"the condition {condition!r}: {error}") from None

    def present(self, name: str, condition: str | None) -> ViewContents:
        """The rows of a view, and their version."""
        with self._snapshot():
            version, floor, key = self._view(name)
            columns, rows = self._found(f"SELECT * FROM {quoted_name(name)}{_where(condition)}")
            return ViewContents(version, floor, key, columns, rows)

    def since(self, name: str, version: int, condition: str | None) -> ChangesSince:
        """What changed after a version."""
        with self._snapshot():
            latest, floor, key = self._view(name)
            if latest == version:
                return ChangesSince(latest, floor, key, [], [])
            order = ", ".join([VERSION, *map(quoted_name, key), PART])
            both = f"({condition}) AND {VERSION} > {version}" if condition else f"{VERSION} > {version}"
            columns, rows = self._found(
                f"SELECT * FROM {quoted_name(beside('changes', name))} WHERE {both} ORDER BY {order}"
            )
            _, versions = self._found(
                "SELECT version, at_ms, query, batch FROM millstream_versions"
                f" WHERE view = {quoted_text(name)} AND version > {version}"
            )
            notes = {at: note for at, *note in versions}
            return ChangesSince(
                latest,
                floor,
                key,
                columns[2:],
                [(at, *notes[at], bool(part), tuple(row)) for at, part, *row in rows],
            )

    def _key(self, name: str, values: Sequence[str]) -> list[tuple[str, str]]:
        """The columns of a view's key, each with the requested value."""
        with self._snapshot():
            _, _, columns = self._view(name)
        if len(values) != len(columns):
            raise MillstreamError(f"view {name!r} has the key {', '.join(columns)}: give a value for each")
        return list(zip(columns, values, strict=True))

    def _view(self, name: str) -> tuple[int, int, tuple[str, ...]]:
        _, found = self._found(
            f"SELECT version, floor, key_columns FROM millstream_views WHERE name = {quoted_text(name)}"
        )
        if not found or is_ours(name):
            _, names = self._found("SELECT name FROM millstream_views ORDER BY name")
            there = ", ".join(name for (name,) in names if not is_ours(name)) or "none"
            raise MillstreamError(f"there is no view {name!r} in {self.where}; there are: {there}")
        ((version, floor, key),) = found
        return version, floor, tuple(json.loads(key))


def _where(condition: str | None) -> str:
    return f" WHERE ({condition})" if condition else ""
