"""SQL text of expressions that are given as calls: operators by their signs, literals, casts, CASE, lambdas.

``recorded`` builds it of the calls that PySpark's ``Column`` makes, ``column_trees`` of a tree that Spark has
made of the same calls. Both name an operation as Spark does, so both give the same text, which is what a
person would have written: ``eur > 0.5D AND status IN ('ok', 'paid')``.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from millstream.sqltypes.ddl import SchemaError, quoted, type_tree


class NoSqlError(ValueError):
    """Something that can't be written as an SQL expression; the message says what."""


# How strongly an operator binds its operands, as in Spark's grammar.
_OR, _AND, _NOT, _COMPARED, _SIGN, _WHOLE = 1, 2, 3, 5, 12, 20
_INFIX = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(("=", "<=>", "<", "<=", ">", ">=", "like", "ilike", "rlike"), _COMPARED),
    "|": 6,
    "^": 7,
    "&": 8,
    **dict.fromkeys(("+", "-"), 10),
    **dict.fromkeys(("*", "/", "%"), 11),
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names that mean something else where they stand without quotes.
_WORDS = """
    all and any array as between by case cast current_date current_time current_timestamp current_user date
    day distinct div else end escape exists extract false filter for from hour ilike in interval is like
    localtimestamp map minute month not null or order over position regexp rlike second select some struct
    then timestamp timestamp_ltz timestamp_ntz trim true try_cast unbounded user when where within year
"""
_RESERVED = frozenset(_WORDS.split())
_LOWER = frozenset({"isnan", "startswith", "endswith"})  # Spark has capitals in them
_SEEDED = frozenset({"rand", "randn", "randstr", "shuffle", "uniform", "uuid"})
_ESCAPES = {"\\": r"\\", "'": r"\'", "\n": r"\n", "\t": r"\t", "\r": r"\r", "\0": r"\0"}
_MARK = "\ue000{}\ue001"  # stands for a lambda's variable until the lambda is complete


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression as text. ``power`` is how strongly its outermost operator binds. ``functions`` are the
    Python functions that it calls, by the names they have in the text."""

    sql: str
    power: int = _WHOLE
    alias: str | None = None
    negation: str | None = None  # the text of NOT expression, where there is a better one
    functions: Mapping[str, Any] = field(default_factory=dict)
    variables: frozenset[str] = frozenset()  # of the lambdas in it
    branches: tuple[tuple[Expression, Expression], ...] = ()  # of a CASE without ELSE

    @property
    def text(self) -> str:
        """The expression, with its alias if it has one."""
        return self.sql if self.alias is None else f"{self.sql} AS {identifier(self.alias)}"

    def within(self, power: int) -> str:
        """The expression as an operand of an operator."""
        return self.sql if self.power >= power else f"({self.sql})"

    def made(
        self, sql: str, power: int = _WHOLE, *others: Expression, negation: str | None = None
    ) -> Expression:
        """Another expression, of which this one and others are parts."""
        functions: dict[str, Any] = {}
        for part in (self, *others):
            add_functions(functions, part.functions)
        variables = self.variables.union(*(one.variables for one in others))
        return Expression(sql, power, None, negation, functions, variables)


def add_functions(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add Python functions, by their names in SQL. Raises NoSqlError if a name is another function's."""
    for name, function in more.items():
        if not _same(known.setdefault(name, function), function):
            raise NoSqlError(f"two different Python functions called {name}; rename one of them")


def _same(one: Any, other: Any) -> bool:
    """True for a UDF that was made twice of the same function."""
    return one is other or (
        (one.func is other.func or _code(one.func) == _code(other.func) is not None)
        and (one.returnType, one.evalType) == (other.returnType, other.evalType)
    )


def _code(function: Any) -> Any:
    """What a function does, if that is in its code alone."""
    if getattr(function, "__closure__", 1) or function.__defaults__ or function.__kwdefaults__:
        return None
    return function.__code__.co_code, function.__code__.co_consts, function.__code__.co_names


def identifier(name: str) -> str:
    """A name, in quotes if it needs them."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED else quoted(name)


def column(name: str) -> Expression:
    """The column, or the field of one, that ``F.col(name)`` means: ``a``, ``a.b``, `` `a.b`.c ``, ``*``."""
    parts = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", name)
    if not parts:
        raise NoSqlError(f"a column can't be called {name!r}")
    names = [inside.replace("``", "`") if inside else plain for inside, plain in parts]
    return Expression(".".join(name if name == "*" else identifier(name) for name in names))


def literal(value: Any) -> Expression:
    """A Python value, as ``F.lit`` takes it."""
    if isinstance(value, Expression):
        return value
    if hasattr(value, "item") and hasattr(value, "dtype"):  # of numpy
        value = value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    if value is None:
        return Expression("NULL")
    if isinstance(value, bool):
        return Expression(str(value).lower())
    if isinstance(value, int):
        return Expression(str(value) if -(1 << 31) <= value < 1 << 31 else f"{value}L", _signed(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return Expression(f"CAST('{name}' AS double)")
        return Expression(f"{value!r}D", _signed(value))
    if isinstance(value, Decimal):
        return Expression(f"{value:f}BD", _signed(value))
    if isinstance(value, str):
        return Expression("'" + "".join(_ESCAPES.get(mark, mark) for mark in value) + "'")
    if isinstance(value, bytes | bytearray):
        return Expression(f"X'{value.hex().upper()}'")
    if isinstance(value, dt.datetime):
        at = value.astimezone(dt.UTC).replace(tzinfo=None)
        return Expression(f"TIMESTAMP '{at.isoformat(' ')}Z'")
    if isinstance(value, dt.date):
        return Expression(f"DATE '{value.isoformat()}'")
    if isinstance(value, dt.timedelta):
        seconds, micros = divmod(abs(value // dt.timedelta(microseconds=1)), 1_000_000)
        sign = "-" if value < dt.timedelta(0) else ""
        return Expression(f"INTERVAL '{sign}{seconds}.{micros:06}' SECOND")
    if isinstance(value, list | tuple):
        return call("array", [literal(one) for one in value])
    raise NoSqlError(f"the literal {value!r} ({type(value).__name__})")


def _signed(value: Any) -> int:
    return _SIGN if value < 0 else _WHOLE


def call(name: str, arguments: Sequence[Expression], *, distinct: bool = False) -> Expression:
    """A call of one of Spark's functions or operators."""
    word = "=" if name == "==" else name.lower()
    if word in _INFIX and len(arguments) == 2:
        return _infix(word, *arguments)
    if len(arguments) == 1:
        (one,) = arguments
        if word in ("!", "not"):
            if one.negation is not None:
                return one.made(one.negation, one.power, negation=one.sql)
            return one.made(f"NOT {one.within(_NOT)}", _NOT, negation=one.sql if one.power >= _NOT else None)
        if word in ("negative", "~"):
            sign, operand = "~" if word == "~" else "-", one.within(_SIGN)
            return one.made(sign + (f"({operand})" if operand.startswith(("-", "~")) else operand), _SIGN)
        if word in ("isnull", "isnotnull"):
            is_null, is_not = (f"{one.within(_COMPARED + 1)} IS {end}" for end in ("NULL", "NOT NULL"))
            told = (is_null, is_not) if word == "isnull" else (is_not, is_null)
            return one.made(told[0], _COMPARED, negation=told[1])
    if word == "in":
        return _in(*arguments)
    if word in ("round", "bround") and len(arguments) == 2 and arguments[1].sql == "0":
        arguments = arguments[:1]
    if word in _SEEDED and arguments and re.fullmatch(r"-?\d+L", arguments[-1].sql):
        arguments = arguments[:-1]  # a seed that Spark chose, another one every time
    texts = [one.text if word in ("struct", "named_struct") else one.sql for one in arguments]
    inside = ("DISTINCT " if distinct else "") + ", ".join(texts)
    if word in ("timestampadd", "timestampdiff"):
        texts[0] = texts[0].strip("'")  # a unit, which is a word
    return Expression("").made(f"{name if word not in _LOWER else word}({inside})", _WHOLE, *arguments)


def _infix(word: str, left: Expression, right: Expression) -> Expression:
    power = _INFIX[word]
    one = left.within(power + 1 if power == _COMPARED else power)
    other, sign = right.within(power + 1), word.upper()
    negation = None
    if word == "=":
        negation = f"{one} != {other}"
    elif word.endswith("like"):
        negation = f"{one} NOT {sign} {other}"
    return left.made(f"{one} {sign} {other}", power, right, negation=negation)


def _in(value: Expression, *among: Expression) -> Expression:
    if not among:
        return value.made("false")  # as In of nothing; SQL has no empty list
    one, listed = value.within(_COMPARED + 1), ", ".join(part.sql for part in among)
    return value.made(f"{one} IN ({listed})", _COMPARED, *among, negation=f"{one} NOT IN ({listed})")


def element(of: Expression, key: Expression) -> Expression:
    """A field of a struct, or an element of an array or a map."""
    return of.made(f"{of.within(_WHOLE)}[{key.sql}]", _WHOLE, key)


def cast(given: Expression, type: str, *, tries: bool = False) -> Expression:
    try:
        kind = str(type_tree(type))
    except SchemaError:
        kind = type  # a type that only Spark can read
    return given.made(f"{'TRY_CAST' if tries else 'CAST'}({given.sql} AS {kind})")


def case(
    branches: Sequence[tuple[Expression, Expression]], otherwise: Expression | None = None
) -> Expression:
    parts = [part for branch in branches for part in branch] + ([] if otherwise is None else [otherwise])
    whens = " ".join(f"WHEN {condition.sql} THEN {value.sql}" for condition, value in branches)
    ending = "" if otherwise is None else f" ELSE {otherwise.sql}"
    made = Expression("").made(f"CASE {whens}{ending} END", _WHOLE, *parts)
    return replace(made, branches=tuple(branches)) if otherwise is None else made


def sql_text(text: str) -> Expression:
    """SQL of a person's own, as ``F.expr`` takes it."""
    return Expression(text, 0)


def variable(number: object) -> Expression:
    """A lambda's variable, whose name is chosen when the lambda is complete."""
    return Expression(_MARK.format(number))


def lambda_function(arguments: Sequence[Expression], body: Expression) -> Expression:
    taken, text, names = set(body.variables), body.sql, []
    for argument in arguments:
        name = next(one for one in _variable_names() if one not in taken)
        taken.add(name)
        names.append(name)
        text = text.replace(argument.sql, name)
    listed = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return replace(body.made(f"{listed} -> {text}", 0), variables=frozenset(taken))


def _variable_names() -> list[str]:
    return [*"xyz", *(f"x{number}" for number in range(1, 1000))]
