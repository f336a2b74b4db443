"""Names in SQL, and the names of the internal tables that belong to a view."""

from __future__ import annotations

import hashlib


def quoted_name(name: str) -> str:
    """A table's or a column's name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def beside(kind: str, view: str) -> str:
    """The name of an internal table that belongs to a view, such as ``changes`` or ``next``. PostgreSQL
    truncates names at 63 bytes, so a longer one is a hash."""
    name = f"millstream_{kind}_{view}"
    if len(name.encode()) <= 63:
        return name
    return f"millstream_{kind}_{hashlib.sha256(view.encode()).hexdigest()[:40]}"


def is_ours(name: str) -> bool:
    """True if a table is internal, and not for the user."""
    return name.lower().startswith("millstream_")
