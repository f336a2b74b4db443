"""Parse lines of log files: common and combined log format, JSON, logfmt, a regular expression, text.

A parser turns a line into a value and, if the line has one, a time. A line that is not in the format is
reported with the reason, and never dropped: the caller decides what becomes of it. Pure.

Lines are bytes, and log files hold whatever a client sent. Bytes that are not UTF-8 are written into the
value as ``\\xNN``, and the original line is kept in ``raw_base64``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from millstream.client.text.template import utc
from millstream.core.errors import ConfigError

FORMATS = "common, combined, json, logfmt, text or regex:PATTERN"
# Where a JSON or logfmt line keeps its time, unless the user says otherwise.
TIME_FIELDS = ("time", "timestamp", "@timestamp", "ts", "date", "datetime")


class Parsed(NamedTuple):
    """What a line says. A key can be taken from ``fields``; ``error`` says why the line was not parsed."""

    value: bytes
    time_ms: int | None = None
    fields: dict[str, Any] | None = None
    error: str | None = None


Parse = Callable[[bytes], Parsed]

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_COMMON = re.compile(rf"(\S+) (\S+) (.*?) \[([^\]]+)\] {_QUOTED} (\d{{3}}|-) (\d+|-)")
_AGENT = re.compile(rf" {_QUOTED} {_QUOTED}")
_REQUEST = re.compile(r"([A-Za-z_-]+) (.+?)(?: (HTTP/[0-9.]+))?")
_PAIR = re.compile(r'\s*([^\s="]+)(?:=(?:"((?:[^"\\]|\\.)*)"|((?!")\S*)))?(?=\s|$)')
_ESCAPED = re.compile(r'\\(["\\])')


def parser(format: str, *, time_field: str | None = None) -> Parse:
    """The parser of a format by its name. Raises ConfigError for an unknown name."""
    if format.startswith("regex:"):
        return _regex(format.removeprefix("regex:"), time_field)
    match format:
        case "common" | "combined":
            return _access(combined=format == "combined")
        case "json":
            return _json(time_field)
        case "logfmt":
            return _logfmt(time_field)
        case "text":
            return Parsed
        case _:
            raise ConfigError(f"{format!r} is not a format of lines; write {FORMATS}")


def unread(line: bytes, reason: str) -> Parsed:
    """A line that could not be parsed: kept as it is, with the reason."""
    text, more = _text(line)
    return Parsed(_encoded({"raw": text, "error": reason, **more}), error=reason)


def time_ms_of(value: Any) -> int | None:
    """A time as log files write it: ISO 8601 (UTC if it names no zone), ``10/Oct/2000:13:55:36 -0700``, or
    seconds, milliseconds or microseconds since 1970. None if it is none of them."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _since_1970(float(value))
    if not isinstance(value, str):
        return None
    text = value.strip().strip("[]")
    try:
        return _since_1970(float(text))
    except ValueError:
        pass
    for read in (datetime.fromisoformat, _common_time):
        try:
            moment = read(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return max(0, round(moment.timestamp() * 1000))
        except (ValueError, OverflowError):
            continue
    return None


def _common_time(text: str) -> datetime:
    return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")


def _since_1970(number: float) -> int | None:
    if not 0 <= number < 1e17:
        return None
    # Since 2001, seconds have ten digits, milliseconds thirteen and microseconds sixteen.
    for limit, factor in ((1e11, 1000.0), (1e14, 1.0), (1e17, 0.001)):
        if number < limit:
            return round(number * factor)
    return None


def _access(*, combined: bool) -> Parse:
    name = "combined" if combined else "common"

    def parse(line: bytes) -> Parsed:
        text, more = _text(line)
        found = _COMMON.match(text)
        agent = _AGENT.fullmatch(text, found.end()) if found and combined else None
        if found is None or (combined and agent is None) or (not combined and found.end() != len(text)):
            return unread(line, f"not in {name} log format")
        host, ident, user, moment, request, status, size = found.groups()
        time_ms = time_ms_of(moment)
        if time_ms is None:
            return unread(line, f"{moment!r} is not a time such as 10/Oct/2000:13:55:36 -0700")
        fields: dict[str, Any] = {
            "time": utc(time_ms),
            "host": host,
            "ident": _or_none(ident),
            "user": _or_none(user),
            **_request(_unescaped(request)),
            "status": None if status == "-" else int(status),
            "bytes": None if size == "-" else int(size),
        }
        if agent is not None:
            fields["referer"], fields["agent"] = (_or_none(_unescaped(part)) for part in agent.groups())
        return Parsed(_encoded({**fields, **more}), time_ms, fields)

    return parse


def _request(request: str) -> dict[str, Any]:
    """The parts of ``GET /x HTTP/1.1``. Clients send anything, so other text is kept as it is."""
    found = _REQUEST.fullmatch(request)
    if found is None:
        return {"request": request, "method": None, "path": None, "protocol": None}
    method, path, protocol = found.groups()
    return {"request": request, "method": method, "path": path, "protocol": protocol}


def _json(time_field: str | None) -> Parse:
    def parse(line: bytes) -> Parsed:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            return unread(line, f"not JSON: {error}")
        if not isinstance(fields, dict):
            return unread(line, "not a JSON object")
        return Parsed(line, _time(fields, time_field), fields)

    return parse


def _logfmt(time_field: str | None) -> Parse:
    def parse(line: bytes) -> Parsed:
        text, more = _text(line)
        fields: dict[str, Any] = {}
        at = 0
        while at < len(text) and text[at:].strip():
            pair = _PAIR.match(text, at)
            if pair is None:
                return unread(line, f"not logfmt at character {at + 1}")
            name, quoted, plain = pair.groups()
            value = _unescaped(quoted) if quoted is not None else plain
            fields[name] = True if value is None else value
            at = pair.end()
        if not any(value is not True for value in fields.values()):
            return unread(line, "not logfmt: no NAME=VALUE in it")
        return Parsed(_encoded({**fields, **more}), _time(fields, time_field), fields)

    return parse


def _regex(pattern: str, time_field: str | None) -> Parse:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"regex:{pattern} is not a regular expression: {error}") from None
    if not expression.groupindex:
        raise ConfigError(f"regex:{pattern} has no named groups to make fields of; write (?P<name>...)")

    def parse(line: bytes) -> Parsed:
        text, more = _text(line)
        found = expression.fullmatch(text)
        if found is None:
            return unread(line, "does not match the regular expression")
        fields: dict[str, Any] = found.groupdict()
        return Parsed(_encoded({**fields, **more}), _time(fields, time_field), fields)

    return parse


def _time(fields: dict[str, Any], time_field: str | None) -> int | None:
    for name in TIME_FIELDS if time_field is None else (time_field,):
        if name in fields and (found := time_ms_of(fields[name])) is not None:
            return found
    return None


def _text(line: bytes) -> tuple[str, dict[str, str]]:
    """The line as text, and the extra fields for a value if the text is not all of it."""
    try:
        return line.decode(), {}
    except UnicodeDecodeError:
        raw = base64.b64encode(line).decode("ascii")
        return line.decode("utf-8", "backslashreplace"), {"raw_base64": raw}


def _or_none(text: str) -> str | None:
    return None if text in ("-", "") else text


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
