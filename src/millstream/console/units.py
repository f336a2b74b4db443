"""Template filters for numbers, sizes, rates and times: one for each kind, with its unit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from jinja2 import Environment
from markupsafe import Markup, escape

from millstream.core.units import bytes_text, duration_text, runs

_NOT_KNOWN = Markup('<span class="unknown" title="not known">&ndash;</span>')

_BACKTICKS = re.compile(r"`([^`]+)`")
_CODE = Markup("<code>{}</code>")
_NONE = Markup("")
_PRECISE = Markup(" data-precise")


def number(value: float | None) -> str:
    """A whole number: ``12,345``."""
    return _NOT_KNOWN if value is None else f"{round(value):,}"


def short(value: float | None) -> str:
    """A number with three significant digits: ``12.3 k``."""
    if value is None:
        return _NOT_KNOWN
    amount = float(value)
    for unit in ("", " k", " M", " G"):
        if abs(amount) < 999.5:
            return f"{amount:.{2 if abs(amount) < 1 else 3}g}{unit}"
        amount /= 1000
    return f"{amount:,.3g} T"


def rate(value: float | None) -> str:
    """A number per second: ``12.3 k/s``."""
    return _NOT_KNOWN if value is None else f"{short(value)}/s"


def size(value: float | None) -> str:
    """A number of bytes: ``1.5 MB``."""
    return _NOT_KNOWN if value is None else bytes_text(value)


def byte_rate(value: float | None) -> str:
    """Bytes per second: ``1.5 MB/s``."""
    return _NOT_KNOWN if value is None else f"{bytes_text(value)}/s"


def duration(seconds: float | None) -> str:
    """Seconds as ``3 h 12 min``."""
    return _NOT_KNOWN if seconds is None else duration_text(round(seconds * 1000))


def span(milliseconds: float | None) -> str:
    """Milliseconds as ``3 h 12 min``."""
    return _NOT_KNOWN if milliseconds is None else duration_text(round(milliseconds))


def time(at_ms: float | None, attributes: Markup = _NONE) -> str:
    """A time. The page's script rewrites it in the viewer's time zone; without the script, it is in UTC."""
    if at_ms is None:
        return _NOT_KNOWN
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may write any number as a timestamp
        return f"{at_ms:,.0f} ms"
    iso = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    plain = moment.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}"{}>{} UTC</time>').format(iso, attributes, plain)


def instant(at_ms: float | None) -> str:
    """A time to the millisecond, written as ``time`` does."""
    return time(at_ms, _PRECISE)


def plural(value: int, noun: str, several: str | None = None) -> str:
    """A number and its noun: ``1 topic``, ``12 topics``, ``2 queries``."""
    return f"{value:,} {noun if value == 1 else several or noun + 's'}"


def code(text: str) -> str:
    """Text with the parts in backticks marked as code."""
    parts = _BACKTICKS.split(text)  # every second part was in backticks
    return Markup("").join(_CODE.format(part) if at % 2 else part for at, part in enumerate(parts))


_JSON = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b')
_KIND = Markup('<span class="json-{}">{}</span>')
_MOST_COLOURED = 128 * 1024  # characters: beyond this, a browser spends more time on colours than on text


def coloured(text: str) -> str:
    """JSON with its keys, strings, numbers and literals marked for colouring."""
    if len(text) > _MOST_COLOURED:
        return text
    parts, at = [], 0
    for found in _JSON.finditer(text):
        string, colon, number_, word = found.groups()
        kind = "word" if word else "number" if number_ else "key" if colon else "text"
        parts += [escape(text[at : found.start()]), _KIND.format(kind, string or number_ or word)]
        parts.append(escape(colon or ""))
        at = found.end()
    return Markup("").join([*parts, escape(text[at:])])


def spark(values: Sequence[float | None], width: int = 88, height: int = 20) -> str:
    """A sparkline as SVG: a line without axes, scaled from zero to the highest value."""
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    highest = max(value for _, value in known) or 1.0
    step = width / max(1, len(values) - 1)
    points = " ".join(
        f"{at * step:.1f},{height - 1 - value / highest * (height - 2):.1f}" for at, value in known
    )
    return Markup(
        '<svg class="sparkline" viewBox="0 0 {0} {1}" width="{0}" height="{1}" aria-hidden="true">'
        '<polyline points="{2}"/></svg>'
    ).format(width, height, points)


_FILTERS = (
    number,
    short,
    rate,
    size,
    byte_rate,
    duration,
    span,
    time,
    instant,
    plural,
    code,
    coloured,
    spark,
    runs,
)


def add_filters(environment: Environment) -> None:
    for filter_ in _FILTERS:
        environment.filters[filter_.__name__] = filter_
