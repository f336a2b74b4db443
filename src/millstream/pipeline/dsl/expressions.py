"""Checks SQL expressions without Spark, and rewrites their columns.

The check is deliberately one-sided. What it refuses is certainly wrong: quotes or parentheses that don't
close, a column that isn't there. What it accepts is still analysed by Spark when the job is planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from millstream.core.units import did_you_mean
from millstream.sqltypes.ddl import quoted


class ExpressionError(ValueError):
    """An SQL expression is certainly wrong; the message says why."""


_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[a-zA-Z]{0,2}|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<arrow>->|=>)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)

# Keywords, and words that appear where a column could without being one (units, types, functions called
# without parentheses). A column with such a name is simply not checked.
_WORDS = """
    all and any array as asc at between binary boolean both by bigint case cast collate cross current
    current_catalog current_database current_date current_time current_timestamp current_user date day
    dayofweek days dec decimal desc distinct div double else end escape exists extract false filter
    first float following for from group having hour hours ignore ilike in int integer interval is last
    leading like limit localtimestamp long map microsecond microseconds millisecond milliseconds minute
    minutes month months not now null nulls numeric or order over partition percentile_cont
    percentile_disc preceding quarter range real regexp respect rlike rollup row rows second seconds
    select session_user short similar smallint some string struct then time timestamp timestamp_ltz
    timestamp_ntz tinyint to trailing true try_cast unbounded unknown user using values variant week
    weeks when where window within year years zone
"""
_RESERVED = frozenset(_WORDS.split())


class SqlToken(NamedTuple):
    """A token of an expression, and its position."""

    kind: str
    text: str
    start: int
    end: int


def tokens_of(sql: str) -> list[SqlToken]:
    found = [SqlToken(str(match.lastgroup), match[0], *match.span()) for match in _TOKEN.finditer(sql)]
    return [token for token in found if token.kind not in ("space", "comment")]


def without_spaces(sql: str) -> str:
    """An expression in a normal form: one space between its tokens, and no comments."""
    return " ".join(token.text for token in tokens_of(sql))


def _tokens(sql: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokens_of(sql)]


def check_sql(sql: object, columns: Iterable[str] | None, *, what: str) -> None:
    """Refuse an expression that can't be right. ``columns`` are those it may use; None: not known."""
    if not isinstance(sql, str) or not sql.strip():
        raise ExpressionError(
            f"{what} must be an SQL expression as text, for example 'amount > 100'; it is {sql!r}"
        )
    tokens = _tokens(sql)
    open_brackets: list[str] = []
    pairs = {")": "(", "]": "["}
    for kind, text in tokens:
        if kind != "mark":
            continue
        if text in "'\"`":
            raise ExpressionError(f"{what} {sql!r}: a quote ({text}) is not closed")
        if text in "([":
            open_brackets.append(text)
        elif text in pairs and (not open_brackets or open_brackets.pop() != pairs[text]):
            raise ExpressionError(f"{what} {sql!r}: a {text!r} has no opening bracket")
        elif text == ";":
            raise ExpressionError(f"{what} {sql!r}: give one expression, without ';'")
    if open_brackets:
        raise ExpressionError(f"{what} {sql!r}: a {open_brackets[-1]!r} is not closed")
    if not tokens:
        raise ExpressionError(f"{what} {sql!r}: the expression is only a comment")
    if columns is not None:
        known = {column.lower() for column in columns}
        for name in columns_used(tokens):
            if name.lower() not in known:
                raise ExpressionError(f"{what} {sql!r}: {no_such_column(name, columns)}")


def no_such_column(name: str, columns: Iterable[str]) -> str:
    """``there is no column 'crad'; did you mean 'card'? The columns are ...``"""
    listed = list(columns)
    hint = did_you_mean(name, listed)
    return (
        f"there is no column {name!r}{f'; {hint}' if hint else '.'} The columns are"
        f" {', '.join(listed) or 'none'}"
    )


def columns_used(tokens: list[tuple[str, str]]) -> list[str]:
    """The names that must be columns; none if there is a lambda, because lambdas bring names of their own."""
    if any(kind == "arrow" for kind, _ in tokens):
        return []
    names = []
    for index, (kind, text) in enumerate(tokens):
        before = tokens[index - 1][1].lower() if index else ""
        after = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        if before in (".", "as", ":") or after == "(" or _is_operand(tokens, index - 1):
            continue  # a field, an alias (with or without AS), a function
        if kind == "quoted":
            names.append(text[1:-1].replace("``", "`"))
        elif kind == "word" and text.lower() not in _RESERVED:
            # DATE '...' and X'1F' are literals; so is the unit in INTERVAL '1' DAY
            if index + 1 < len(tokens) and tokens[index + 1][0] == "text":
                continue
            names.append(text)
    return names


def _is_operand(tokens: list[tuple[str, str]], index: int) -> bool:
    """True if the token ends a value. Two values are never adjacent, so what follows is the value's alias."""
    if index < 0:
        return False
    kind, text = tokens[index]
    if kind == "word":
        return text.lower() not in _RESERVED or text.lower() == "end"
    return kind in ("number", "text", "quoted") or text in ")]"


def output_name(sql: str) -> str | None:
    """The column that ``expression AS name`` or a plain column gives; None where Spark makes one up."""
    tokens = _tokens(sql)
    named = tokens and (
        tokens[-1][0] == "quoted" or (tokens[-1][0] == "word" and tokens[-1][1].lower() != "end")
    )
    if len(tokens) >= 2 and named and (tokens[-2][1].lower() == "as" or _is_operand(tokens, len(tokens) - 2)):
        return tokens[-1][1].strip("`")
    if len(tokens) == 1 and tokens[0][0] in ("word", "quoted"):
        return tokens[0][1].strip("`")
    if len(tokens) >= 3 and all(
        (kind in ("word", "quoted")) if index % 2 == 0 else text == "."
        for index, (kind, text) in enumerate(tokens)
    ):
        return tokens[-1][1].strip("`")
    return None


def without_alias(sql: str) -> str:
    """The expression in ``expression AS name`` or ``expression name``."""
    spans = [match for match in _TOKEN.finditer(sql) if match.lastgroup not in ("space", "comment")]
    tokens = [(str(match.lastgroup), match[0]) for match in spans]
    if len(tokens) >= 2 and tokens[-1][0] in ("word", "quoted"):
        if tokens[-2][1].lower() == "as":
            return sql[: spans[-2].start()].rstrip()
        if _is_operand(tokens, len(tokens) - 2) and tokens[-1][1].lower() != "end":
            return sql[: spans[-2].end()]
    return sql


def with_columns(sql: str, columns: Mapping[str, str]) -> str:
    """The expression with every column, and ``*`` as an argument, replaced by the SQL that makes the columns.

    Fields, functions, aliases, texts and the variables of lambdas stay as they are. A column that is a field
    of a ``struct(...)`` keeps its name; Spark would otherwise make one up for the replacement.
    """
    known = {name.lower(): f"({made})" for name, made in columns.items()}
    parts = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(sql)]
    places = [at for at, (kind, _) in enumerate(parts) if kind not in ("space", "comment")]
    tokens = [parts[at] for at in places]
    for variable in _lambda_variables(tokens):
        known.pop(variable, None)
    calls: list[str] = []  # the functions whose arguments the current token is in
    for index, (kind, text) in enumerate(tokens):
        before = tokens[index - 1][1].lower() if index else ""
        after = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        if text == "(":
            calls.append(before)
        elif text == ")" and calls:
            calls.pop()
        name = (text[1:-1].replace("``", "`") if kind == "quoted" else text).lower()
        if kind in ("word", "quoted") and name in known and before not in (".", "as") and after != "(":
            is_field = calls[-1:] == ["struct"] and before in ("(", ",") and after in (")", ",")
            parts[places[index]] = (kind, f"{known[name]} AS {text}" if is_field else known[name])
        elif text == "*" and before in ("(", ",") and after in (")", ","):
            every = ", ".join(f"({made}) AS {quoted(name)}" for name, made in columns.items())
            parts[places[index]] = (kind, every)
    return "".join(text for _, text in parts)


def _lambda_variables(tokens: list[tuple[str, str]]) -> set[str]:
    """The names before arrows: ``x -> ...`` and ``(x, y) -> ...``."""
    found = set()
    for index, (kind, text) in enumerate(tokens):
        if kind == "arrow" and text == "->" and index:
            at = index - 1
            if tokens[at][1] == ")":
                while at > 0 and tokens[at][1] != "(":
                    at -= 1
                    if tokens[at][0] == "word":
                        found.add(tokens[at][1].lower())
            elif tokens[at][0] == "word":
                found.add(tokens[at][1].lower())
    return found
