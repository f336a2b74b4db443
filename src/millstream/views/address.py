"""Where views are kept: the path of a SQLite file, or the URL of a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

from millstream.core.errors import MillstreamError


def shown(where: str | Path) -> str:
    """Where the views are, for people to read: without the password."""
    if not is_url(where):
        return str(where)
    scheme, _, rest = str(where).partition("?")[0].partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{place}"


def is_url(where: str | Path) -> bool:
    """True for a database. Raises MillstreamError if it is one of another kind."""
    if isinstance(where, str) and "://" in where:
        if where.startswith(("postgresql://", "postgres://")):
            return True
        raise MillstreamError(
            f"views can't be kept in {where.partition('://')[0]}; give a file, or a postgresql:// URL"
        )
    return False
