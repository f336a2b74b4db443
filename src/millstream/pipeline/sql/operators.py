"""SQL operators: arithmetic, comparison, logic, conditions and LIKE."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import (
    Build,
    Compiled,
    Scope,
    Table,
    applied,
    check_count,
    coerced,
    converted,
    strict,
    together,
)
from millstream.pipeline.sql.casts import WIDE, BadValue, checked, fitted, single
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.types import BOOLEAN, DATE, DAYS, DAYTIME, MONTHS, NTZ, STRING, TIMESTAMP, Type

_TIMES = (DATE, TIMESTAMP, NTZ)

# ---- arithmetic --------------------------------------------------------------------------------------


def zero_checked(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def divide(a: Any, b: Any) -> Any:
        if b == 0:
            raise BadValue("division by zero; try_divide gives null instead")
        return function(a, b)

    return divide


def _remainder(a: Any, b: Any) -> Any:
    """The remainder, with the sign of the dividend as in Java."""
    if isinstance(a, float):
        return math.fmod(a, b) if math.isfinite(a) else math.nan
    if isinstance(a, Decimal):
        return WIDE.remainder(a, b)
    found = abs(a) % abs(b)
    return -found if a < 0 else found


def _whole_quotient(a: Any, b: Any) -> int:
    if isinstance(a, Decimal):
        return int(WIDE.divide_int(a, b))
    found = int(abs(a) // abs(b))
    return -found if (a < 0) != (b < 0) else found


def pmod(a: Any, b: Any) -> Any:
    found = _remainder(a, b)
    return _remainder(found + b, b) if found < 0 else found


_DECIMAL_SIZE: dict[str, Callable[[int, int, int, int], tuple[int, int]]] = {
    "+": lambda p1, s1, p2, s2: (max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2)),
    "*": lambda p1, s1, p2, s2: (p1 + p2 + 1, s1 + s2),
    "/": lambda p1, s1, p2, s2: (p1 - s1 + s2 + max(6, s1 + p2 + 1), max(6, s1 + p2 + 1)),
    "%": lambda p1, s1, p2, s2: (min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2)),
}
_DECIMAL_SIZE["-"] = _DECIMAL_SIZE["+"]
_DECIMAL_SIZE["pmod"] = _DECIMAL_SIZE["%"]
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": zero_checked(lambda a, b: a / b),
    "%": zero_checked(_remainder),
    "pmod": zero_checked(pmod),
}
_DECIMALS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    **_COMPUTE,
    "+": WIDE.add,
    "-": WIDE.subtract,
    "*": WIDE.multiply,
    "/": zero_checked(WIDE.divide),
}


def arithmetic(sign: str) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 2, 2)
        left, right = given
        for_times = _of_times(sign, left, right)
        if for_times is not None:
            return for_times
        left, right = (_number(sign, one, other) for one, other in ((left, right), (right, left)))
        kind = types.common(left.type, right.type)
        if kind is None or not types.is_number(kind):
            raise AnalysisError(f"{sign} is not defined for {left.type.text} and {right.type.text}")
        constant = left.constant and right.constant
        if "decimal" in (left.type.name, right.type.name) and not types.is_fraction(kind):
            left, right = _exact(left), _exact(right)
            size = _DECIMAL_SIZE[sign](*left.type.size, *right.type.size)
            result = types.decimal(*size)
            compute = _DECIMALS[sign]
            run = applied(lambda a, b: fitted(compute(a, b), result), [left.run, right.run])
            return Compiled(result, run, constant=constant)
        if sign == "/":
            kind = types.DOUBLE
        runs = [converted(one, kind).run for one in (left, right)]
        function = _COMPUTE[sign]
        if kind in types.INTEGERS:
            return Compiled(
                kind, applied(lambda a, b: checked(function(a, b), kind), runs), constant=constant
            )
        if kind == types.FLOAT:
            return Compiled(kind, applied(lambda a, b: single(function(a, b)), runs), constant=constant)
        return Compiled(kind, applied(function, runs), constant=constant)

    return build


def _number(sign: str, given: Compiled, other: Compiled) -> Compiled:
    """An operand; text beside a number is read as a number."""
    if given.type == STRING:
        return converted(given, types.BIGINT if other.type in types.INTEGERS else types.DOUBLE)
    return given


def _exact(given: Compiled) -> Compiled:
    if given.type in types.INTEGERS and given.constant:
        value = given.run([])
        digits = len(str(abs(value))) if value is not None else 1
        return converted(given, types.decimal(digits, 0))
    return converted(given, types.as_decimal(given.type))


def plus_months(time: Any, months: int) -> Any:
    """The same day so many months later, or the last day of that month if it is shorter."""
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    for day in (time.day, 30, 29, 28):
        try:
            return time.replace(year=year, month=month + 1, day=day)
        except ValueError:
            if day == 28 or not 1 <= year <= 9999:
                raise BadValue("the time is outside the years 1 to 9999") from None
    raise AssertionError(time)


def _of_times(sign: str, left: Compiled, right: Compiled) -> Compiled | None:
    """Arithmetic with times and intervals; None if there is neither."""
    kinds = left.type, right.type
    if not any(kind in (*_TIMES, DAYS, DAYTIME, MONTHS) for kind in kinds):
        return None
    if sign == "+" and left.type in (DAYS, DAYTIME, MONTHS) and right.type in _TIMES:
        left, right = right, left
    runs = [left.run, right.run]
    constant = left.constant and right.constant
    if sign in "+-" and left.type in _TIMES and right.type == MONTHS:
        turn = 1 if sign == "+" else -1
        return Compiled(left.type, applied(lambda a, b: plus_months(a, turn * b), runs), constant=constant)
    if sign in "+-" and left.type in _TIMES and right.type in (DAYS, DAYTIME):
        kind = TIMESTAMP if (left.type, right.type) == (DATE, DAYTIME) else left.type
        runs[0] = converted(left, kind).run
        return Compiled(kind, applied(_COMPUTE[sign], runs), constant=constant)
    if sign == "-" and STRING not in kinds and all(kind in _TIMES for kind in kinds):
        if kinds == (DATE, DATE):
            run = applied(lambda a, b: a - b, runs)
        else:
            run = applied(lambda a, b: a - b, [converted(one, TIMESTAMP).run for one in (left, right)])
        return Compiled(DAYS if kinds == (DATE, DATE) else DAYTIME, run, constant=constant)
    if left.type == right.type and left.type in (DAYS, DAYTIME, MONTHS) and sign in "+-":
        return Compiled(left.type, applied(_COMPUTE[sign], runs), constant=constant)
    if sign == "*" and {DAYTIME} & set(kinds) and set(kinds) & set(types.INTEGERS):
        return Compiled(DAYTIME, applied(lambda a, b: a * b, runs), constant=constant)
    if left.type == DATE and right.type in types.INTEGERS and sign in "+-":
        turn = 1 if sign == "+" else -1
        return Compiled(DATE, applied(lambda a, b: a + dt.timedelta(days=turn * b), runs), constant=constant)
    raise Unsupported(f"{left.type.text} {sign} {right.type.text}")


def _negative(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    (one,) = given
    if not types.is_number(one.type) and one.type not in (DAYS, DAYTIME, MONTHS):
        one = coerced(name, one, types.DOUBLE)
    kind = one.type
    if kind in types.INTEGERS:
        return Compiled(kind, applied(lambda a: checked(-a, kind), [one.run]), constant=one.constant)
    return Compiled(kind, applied(lambda a: -a, [one.run]), constant=one.constant)


def _bitwise(function: Callable[[int, int], int]) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 2, 2)
        left, right = together(name, given)
        if left.type not in types.INTEGERS:
            raise AnalysisError(f"{name} is for whole numbers, not {left.type.text}")
        return Compiled(left.type, applied(function, [left.run, right.run]))

    return build


# ---- comparison --------------------------------------------------------------------------------------


def ordered(kind: Type) -> Callable[[Any], Any]:
    """The key by which values are compared: NaN is equal to itself and greater than every number."""
    if types.is_fraction(kind):
        return lambda value: (1, 0.0) if value != value else (0, value)
    if kind.inner:
        raise Unsupported(f"an order of {kind.text}")
    return lambda value: value


def comparison(function: Callable[[Any, Any], bool]) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        left, right = comparable(name, given)
        if types.is_fraction(left.type):
            key = ordered(left.type)
            run = applied(lambda a, b: function(key(a), key(b)), [left.run, right.run])
        elif left.type.inner and name not in ("=", "!="):
            raise Unsupported(f"{left.type.text} {name} {right.type.text}")
        else:
            run = applied(function, [left.run, right.run])
        return Compiled(BOOLEAN, run, constant=left.constant and right.constant)

    return build


def comparable(name: str, given: list[Compiled]) -> tuple[Compiled, Compiled]:
    check_count(name, given, 2, 2)
    left, right = together(name, given)
    return left, right


def _null_safe(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    left, right = (one.run for one in comparable(name, given))

    def run(row: list[Any]) -> bool:
        a, b = left(row), right(row)
        return a is b if a is None or b is None else a == b or (a != a and b != b)

    return Compiled(BOOLEAN, run)


def _between(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 3, 3)
    low = comparison(lambda a, b: a >= b)(">=", [given[0], given[1]], scope)
    high = comparison(lambda a, b: a <= b)("<=", [given[0], given[2]], scope)
    return _and("and", [low, high], scope)


def _in(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, None)
    subject, *others = (one.run for one in together(name, given))

    def run(row: list[Any]) -> bool | None:
        value = subject(row)
        if value is None:
            return None
        unknown = False
        for other in others:
            found = other(row)
            if found is None:
                unknown = True
            elif found == value:
                return True
        return None if unknown else False

    return Compiled(BOOLEAN, run)


# ---- logic -------------------------------------------------------------------------------------------


def _and(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    left, right = (coerced(name, one, BOOLEAN).run for one in given)

    def run(row: list[Any]) -> bool | None:
        a = left(row)
        if a is False:
            return False
        b = right(row)
        return False if b is False else None if a is None or b is None else True

    return Compiled(BOOLEAN, run)


def _or(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    left, right = (coerced(name, one, BOOLEAN).run for one in given)

    def run(row: list[Any]) -> bool | None:
        a = left(row)
        if a is True:
            return True
        b = right(row)
        return True if b is True else None if a is None or b is None else False

    return Compiled(BOOLEAN, run)


def _case(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    """Conditions and values by turns; if one more is left, it is the ELSE value."""
    check_count(name, given, 2, None)
    conditions = [coerced(name, one, BOOLEAN).run for one in given[: len(given) // 2 * 2 : 2]]
    values = [*given[1::2], *(given[-1:] if len(given) % 2 else [])]
    values = together(name, values)
    runs = [one.run for one in values]
    otherwise = runs.pop() if len(given) % 2 else (lambda row: None)
    pairs = list(zip(conditions, runs, strict=True))

    def run(row: list[Any]) -> Any:
        for condition, value in pairs:
            if condition(row):
                return value(row)
        return otherwise(row)

    return Compiled(values[0].type, run)


def _coalesce(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, None)
    values = together(name, given)

    def run(row: list[Any]) -> Any:
        for value in values:
            found = value.run(row)
            if found is not None:
                return found
        return None

    return Compiled(values[0].type, run, constant=all(one.constant for one in values))


def _isnull(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    value = given[0].run
    return Compiled(BOOLEAN, lambda row: value(row) is None)


def _isnotnull(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    value = given[0].run
    return Compiled(BOOLEAN, lambda row: value(row) is not None)


def _isnan(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    value = coerced(name, given[0], types.DOUBLE).run

    def run(row: list[Any]) -> bool:
        found = value(row)
        return found is not None and found != found

    return Compiled(BOOLEAN, run)


def _if(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 3, 3)
    return _case(name, given, scope)


def _nullif(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    equal, first = comparison(lambda a, b: a == b)("=", given, scope).run, given[0].run
    return Compiled(given[0].type, lambda row: None if equal(row) else first(row))


def _nvl2(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 3, 3)
    return _case(name, [_isnotnull(name, given[:1], scope), *given[1:]], scope)


def extreme(choose: Callable[..., Any]) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 2, None)
        values = together(name, given)
        key = ordered(values[0].type)

        def run(row: list[Any]) -> Any:
            found = [value for one in values if (value := one.run(row)) is not None]
            return choose(found, key=key) if found else None

        return Compiled(values[0].type, run)

    return build


# ---- patterns of text --------------------------------------------------------------------------------


def like(pattern: str, escape: str = "\\", *, any_case: bool = False) -> re.Pattern[str]:
    """The regular expression of a LIKE pattern."""
    parts, at = [], 0
    while at < len(pattern):
        mark = pattern[at]
        if mark == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise BadValue(f"the LIKE pattern {pattern!r} escapes a character that needs no escape")
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(mark) or re.escape(mark))
        at += 1
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if any_case else 0))


def _like(any_case: bool) -> Build:
    def matches(text: str, pattern: str, escape: str = "\\") -> bool:
        return like(pattern, escape, any_case=any_case).fullmatch(text) is not None

    return strict(matches, (STRING, STRING, STRING), BOOLEAN, optional=1)


TABLE: Table = {
    **{sign: arithmetic(sign) for sign in _COMPUTE},
    "mod": arithmetic("%"),
    "div": strict(zero_checked(_whole_quotient), ("number", "number"), types.BIGINT),
    "negative": _negative,
    "positive": lambda name, given, scope: coerced(name, given[0], "number"),
    "&": _bitwise(lambda a, b: a & b),
    "|": _bitwise(lambda a, b: a | b),
    "^": _bitwise(lambda a, b: a ^ b),
    "~": strict(lambda a: ~a, ("number",), lambda kinds: kinds[0]),
    "=": comparison(lambda a, b: a == b),
    "!=": comparison(lambda a, b: a != b),
    "<": comparison(lambda a, b: a < b),
    "<=": comparison(lambda a, b: a <= b),
    ">": comparison(lambda a, b: a > b),
    ">=": comparison(lambda a, b: a >= b),
    "<=>": _null_safe,
    "between": _between,
    "in": _in,
    "and": _and,
    "or": _or,
    "not": strict(lambda a: not a, (BOOLEAN,), BOOLEAN),
    "case": _case,
    "if": _if,
    "coalesce": _coalesce,
    "nvl": _coalesce,
    "ifnull": _coalesce,
    "nvl2": _nvl2,
    "nullif": _nullif,
    "isnull": _isnull,
    "isnotnull": _isnotnull,
    "isnan": _isnan,
    "greatest": extreme(max),
    "least": extreme(min),
    "like": _like(False),
    "ilike": _like(True),
}
