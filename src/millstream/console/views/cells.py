"""Template filters for values of views: null, times, JSON and numbers each look different."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime

from jinja2 import Environment
from markupsafe import Markup

from millstream.console.units import time
from millstream.console.views.tables import Value

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_SHORT = 120  # characters of a value in a table; the row's own page shows the whole value
_NULL = Markup('<span class="null">NULL</span>')


def cell(value: Value, digits: int | None = None) -> str:
    """A value in a table: one line, cut off. ``digits`` is the number of decimals in its column."""
    if isinstance(value, float) and digits is not None and math.isfinite(value) and abs(value) < 1e15:
        return Markup('<span title="{!r}">{}</span>').format(value, f"{value:,.{digits}f}")
    if isinstance(value, str) and not _TIME.fullmatch(value):
        kind = " mono" if _is_json(value) else ""
        line = " ".join(value[: 2 * _SHORT].split())
        if len(value) <= _SHORT and line == value:
            return Markup('<span class="value{}">{}</span>').format(kind, value)
        short = line[:_SHORT]
        return Markup('<span class="value{}" title="{} characters">{}…</span>').format(
            kind, len(value), short
        )
    return whole(value)


def whole(value: Value) -> str:
    """A whole value; JSON is indented over several lines."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        exact = repr(value)
        return exact if "." not in exact else Markup('<span title="{}">{:.10g}</span>').format(exact, value)
    if _TIME.fullmatch(value):
        moment = datetime.fromisoformat(value)
        return time(moment.timestamp() * 1000)
    if _is_json(value):
        return Markup('<pre class="json">{}</pre>').format(
            json.dumps(json.loads(value), indent=2, ensure_ascii=False)
        )
    return Markup('<span class="whole">{}</span>').format(value)


def _is_json(text: str) -> bool:
    """True for an object or an array. A single word or number may be JSON too, but people see text."""
    if not text.startswith(("{", "[")):
        return False
    try:
        json.dumps(json.loads(text), indent=2)
    except (ValueError, RecursionError):
        return False
    return True


def add_filters(environment: Environment) -> None:
    for filter_ in (cell, whole):
        environment.filters[filter_.__name__] = filter_
