"""SQL functions of text and bytes."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import zlib
from collections.abc import Callable
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Compiled, Scope, Table, check_count, coerced, strict, together
from millstream.pipeline.sql.casts import BadValue, double_text
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.types import BIGINT, BINARY, BOOLEAN, DOUBLE, INT, STRING, Type

# What Java's regular expressions have and Python's lack, or have with another meaning.
_JAVA_ONLY = re.compile(r"\\[zZhHpPXRGQEkKvV]|&&|\[\^?[^\]]*\[")


@functools.lru_cache(maxsize=256)
def pattern_of(text: str) -> re.Pattern[str]:
    if _JAVA_ONLY.search(text):
        raise Unsupported(f"the regular expression {text!r}")
    try:
        return re.compile(re.sub(r"\(\?<(?=[a-zA-Z])", "(?P<", text), re.ASCII)
    except re.error as error:
        raise BadValue(f"the regular expression {text!r} is invalid: {error}") from None


def _replacement(text: str) -> Callable[[re.Match[str]], str]:
    """A replacement text in Java's syntax: ``$1`` and ``\\$``."""

    def fill(match: re.Match[str]) -> str:
        try:
            return re.sub(
                r"\\(.)|\$(\d)",
                lambda m: m[1] if m[2] is None else match[int(m[2])] or "",
                text,
                flags=re.DOTALL,
            )
        except IndexError:
            raise BadValue(f"the replacement {text!r} names a group that is not there") from None

    return fill


def _extract(text: str, pattern: str, group: int = 1) -> str:
    compiled = pattern_of(pattern)
    if not 0 <= group <= compiled.groups:
        raise BadValue(f"the regular expression {pattern!r} has {compiled.groups} groups, not {group}")
    match = compiled.search(text)
    return "" if match is None else match[group] or ""


def _extract_all(text: str, pattern: str, group: int = 1) -> list[str]:
    compiled = pattern_of(pattern)
    if not 0 <= group <= compiled.groups:
        raise BadValue(f"the regular expression {pattern!r} has {compiled.groups} groups, not {group}")
    return [match[group] or "" for match in compiled.finditer(text)]


def _split(text: str, pattern: str, limit: int = -1) -> list[str]:
    parts: list[str] = []
    start = 0
    for match in pattern_of(pattern).finditer(text):
        if limit > 0 and len(parts) == limit - 1:
            break
        if match.end() == 0 or (match.start() == match.end() == len(text)):
            continue  # an empty match at the start or the end splits nothing off
        parts.append(text[start : match.start()])
        start = match.end()
    return [*parts, text[start:]]


def substring(text: Any, position: int, length: int = 1 << 31) -> Any:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + length
    return text[max(start, 0) : end] if end > max(start, 0) else text[:0]


def _substring(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    kind = BINARY if given and given[0].type == BINARY else STRING
    return strict(substring, (kind, INT, INT), kind, optional=1)(name, given, scope)


def _padded(left: bool) -> Callable[..., str]:
    def pad(text: str, length: int, filling: str = " ") -> str:
        missing = length - len(text)
        if missing <= 0 or not filling:
            return text[: max(length, 0)]
        added = (filling * (missing // len(filling) + 1))[:missing]
        return added + text if left else text + added

    return pad


def _locate(part: str, text: str, position: int = 1) -> int:
    return 0 if position < 1 else text.find(part, position - 1) + 1


def _part(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise BadValue("split_part counts from 1, or backwards from -1, not from 0")
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _index(text: str, delimiter: str, count: int) -> str:
    if count == 0 or not delimiter:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _capitals(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _translate(text: str, old: str, new: str) -> str:
    table: dict[str, str] = {}
    for at, mark in enumerate(old):
        table.setdefault(mark, new[at : at + 1])
    return "".join(table.get(mark, mark) for mark in text)


def trimmed(sides: str) -> Callable[..., str]:
    def trim(first: str, second: str | None = None) -> str:
        marks, text = (" ", first) if second is None else (first, second)
        text = text.lstrip(marks) if "l" in sides else text
        return text.rstrip(marks) if "r" in sides else text

    return trim


def _levenshtein(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for at, mark in enumerate(one, 1):
        before, row[0] = row[0], at
        for to, against in enumerate(other, 1):
            before, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, before + (mark != against))
    return row[-1]


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _hex(value: Any) -> str:
    if isinstance(value, int):
        return f"{value & (1 << 64) - 1:X}"
    return (value.encode() if isinstance(value, str) else bytes(value)).hex().upper()


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        raise BadValue(f"{text!r} is not hexadecimal") from None


def _encoded(text: str, name: str) -> bytes:
    return text.encode(_charset(name))


def _decoded(data: bytes, name: str) -> str:
    return data.decode(_charset(name), "replace")


def _charset(name: str) -> str:
    known = {"utf-8": "utf-8", "us-ascii": "ascii", "iso-8859-1": "latin-1", "utf-16be": "utf-16-be"}
    if name.lower() not in known:
        raise Unsupported(f"the character set {name!r}")
    return known[name.lower()]


def _concat(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    if given and given[0].type.name == "array":
        arrays = together(name, given)
        return strict(
            lambda *parts: [one for part in parts for one in part], [None] * len(arrays), arrays[0].type
        )(name, arrays, scope)
    if given and all(one.type == BINARY for one in given):
        return strict(lambda *parts: b"".join(parts), [BINARY] * len(given), BINARY)(name, given, scope)
    return strict(lambda *parts: "".join(parts), [STRING] * len(given), STRING)(name, given, scope)


def _concat_ws(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, None)
    separator = coerced(name, given[0], STRING).run
    parts = [one if one.type.name == "array" else coerced(name, one, STRING) for one in given[1:]]
    if any(one.type.name == "array" and one.type.element != STRING for one in parts):
        raise AnalysisError("concat_ws takes strings and arrays of strings")
    runs = [one.run for one in parts]

    def run(row: list[Any]) -> str | None:
        between = separator(row)
        if between is None:
            return None
        found: list[str] = []
        for part in runs:
            value = part(row)
            if isinstance(value, list):
                found += [one for one in value if one is not None]
            elif value is not None:
                found.append(value)
        return str(between.join(found))

    return Compiled(STRING, run)


_FORMAT = re.compile(r"%(?:%|(\d*)(\.\d+)?([sdf])|.)?")


def _format_string(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, None)
    pattern, values = coerced(name, given[0], STRING).run, given[1:]
    shown = [one.type for one in values]

    def run(row: list[Any]) -> str | None:
        text = pattern(row)
        if text is None:
            return None
        left = [(kind, one.run(row)) for kind, one in zip(shown, values, strict=True)]

        def fill(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%"
            if match[3] is None or not left:
                raise Unsupported(f"format_string({text!r})")
            kind, value = left.pop(0)
            return _filled(match, kind, value)

        return _FORMAT.sub(fill, text)

    return Compiled(STRING, run)


def _filled(match: re.Match[str], kind: Type, value: Any) -> str:
    width, letter = match[1], match[3]
    if value is None:
        return "null"[: int(match[2][1:]) if match[2] else None].rjust(int(width or 0))
    if letter == "s":
        if kind.inner or kind.name in ("date", "timestamp", "decimal"):
            raise Unsupported(f"format_string with %s for {kind.text}")
        text = double_text(value) if kind == DOUBLE else str(value).lower() if kind == BOOLEAN else str(value)
        return text.rjust(int(width or 0))
    if (letter == "d") != (kind in types.INTEGERS):
        raise BadValue(f"format_string: {match[0]} is not for {kind.text}")
    return str(f"%{match[0][1:]}" % value)


def _is_utf8(text: str) -> bool:
    """True if a text has no surrogates, which stand for bytes that are not UTF-8."""
    return not any("\udc80" <= mark <= "\udcff" for mark in text)


def _length(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    kind = BINARY if given and given[0].type == BINARY else STRING
    return strict(len, (kind,), INT)(name, given, scope)


def _either(function: Callable[[Any], Any], kind: Type) -> Any:
    """A function of bytes, or of a text's bytes."""
    return strict(function, (BINARY,), kind)


def _reverse(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    kind = given[0].type if given and given[0].type.name == "array" else STRING
    return strict(lambda value: value[::-1], (None if kind.inner else STRING,), kind)(name, given, scope)


def _hexed(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    kind = BIGINT if given[0].type in types.INTEGERS else BINARY if given[0].type == BINARY else STRING
    return strict(_hex, (kind,), STRING)(name, given, scope)


def same_kind(function: Callable[[Any, Any], bool]) -> Any:
    """A test of two texts, or of two byte strings."""

    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        kind = BINARY if given and all(one.type == BINARY for one in given) else STRING
        return strict(function, (kind, kind), BOOLEAN)(name, given, scope)

    return build


_MATCHES = strict(
    lambda text, pattern: pattern_of(pattern).search(text) is not None, (STRING, STRING), BOOLEAN
)
_UPPER = strict(str.upper, (STRING,), STRING)
_LOWER = strict(str.lower, (STRING,), STRING)
_LOCATE = strict(_locate, (STRING, STRING, INT), INT, optional=1)

TABLE: Table = {
    "upper": _UPPER,
    "ucase": _UPPER,
    "lower": _LOWER,
    "lcase": _LOWER,
    "length": _length,
    "len": _length,
    "char_length": _length,
    "character_length": _length,
    "octet_length": _either(len, INT),
    "trim": strict(trimmed("lr"), (STRING, STRING), STRING, optional=1),
    "ltrim": strict(trimmed("l"), (STRING, STRING), STRING, optional=1),
    "rtrim": strict(trimmed("r"), (STRING, STRING), STRING, optional=1),
    "substring": _substring,
    "substr": _substring,
    "left": strict(lambda text, count: text[: max(count, 0)], (STRING, INT), STRING),
    "right": strict(lambda text, count: text[-count:] if count > 0 else "", (STRING, INT), STRING),
    "concat": _concat,
    "||": _concat,
    "concat_ws": _concat_ws,
    "replace": strict(
        lambda text, old, new="": text.replace(old, new) if old else text, (STRING,) * 3, STRING, optional=1
    ),
    "translate": strict(_translate, (STRING,) * 3, STRING),
    "repeat": strict(lambda text, times: text * max(times, 0), (STRING, INT), STRING),
    "space": strict(lambda times: " " * max(times, 0), (INT,), STRING),
    "reverse": _reverse,
    "lpad": strict(_padded(True), (STRING, INT, STRING), STRING, optional=1),
    "rpad": strict(_padded(False), (STRING, INT, STRING), STRING, optional=1),
    "instr": strict(lambda text, part: text.find(part) + 1, (STRING, STRING), INT),
    "locate": _LOCATE,
    "split": strict(_split, (STRING, STRING, INT), types.array(STRING), optional=1),
    "split_part": strict(_part, (STRING, STRING, INT), STRING),
    "substring_index": strict(_index, (STRING, STRING, INT), STRING),
    "rlike": _MATCHES,
    "regexp_like": _MATCHES,
    "regexp_extract": strict(_extract, (STRING, STRING, INT), STRING, optional=1),
    "regexp_extract_all": strict(_extract_all, (STRING, STRING, INT), types.array(STRING), optional=1),
    "regexp_replace": strict(
        lambda text, pattern, new: pattern_of(pattern).sub(_replacement(new), text), (STRING,) * 3, STRING
    ),
    "regexp_count": strict(
        lambda text, pattern: sum(1 for _ in pattern_of(pattern).finditer(text)), (STRING,) * 2, INT
    ),
    "startswith": same_kind(lambda text, part: text.startswith(part)),
    "endswith": same_kind(lambda text, part: text.endswith(part)),
    "contains": same_kind(lambda text, part: part in text),
    "initcap": strict(_capitals, (STRING,), STRING),
    "ascii": strict(lambda text: ord(text[0]) if text else 0, (STRING,), INT),
    "chr": strict(lambda number: "" if number < 0 else chr(number % 256), (BIGINT,), STRING),
    "char": strict(lambda number: "" if number < 0 else chr(number % 256), (BIGINT,), STRING),
    "levenshtein": strict(_levenshtein, (STRING, STRING), INT),
    "format_string": _format_string,
    "printf": _format_string,
    "format_number": strict(lambda value, digits: f"{value:,.{digits}f}", (DOUBLE, INT), STRING),
    "md5": _either(lambda data: hashlib.md5(data).hexdigest(), STRING),  # noqa: S324 - the user's choice
    "sha1": _either(lambda data: hashlib.sha1(data).hexdigest(), STRING),  # noqa: S324
    "sha": _either(lambda data: hashlib.sha1(data).hexdigest(), STRING),  # noqa: S324
    "sha2": strict(_sha2, (BINARY, INT), STRING),
    "crc32": _either(zlib.crc32, BIGINT),
    "base64": _either(lambda data: base64.b64encode(data).decode(), STRING),
    "unbase64": strict(base64.b64decode, (STRING,), BINARY),
    "hex": _hexed,
    "unhex": strict(_unhex, (STRING,), BINARY),
    "encode": strict(_encoded, (STRING, STRING), BINARY),
    "decode": strict(_decoded, (BINARY, STRING), STRING),
    "find_in_set": strict(
        lambda part, text: (
            0 if "," in part or part not in text.split(",") else text.split(",").index(part) + 1
        ),
        (STRING, STRING),
        INT,
    ),
    "is_valid_utf8": strict(_is_utf8, (STRING,), BOOLEAN),
}
