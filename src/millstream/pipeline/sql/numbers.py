"""SQL functions of numbers, and casts that are written as functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import (
    Build,
    Compiled,
    Scope,
    Table,
    check_count,
    coerced,
    converted,
    strict,
)
from millstream.pipeline.sql.casts import WIDE, BadValue, checked, fitted
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.operators import arithmetic
from millstream.pipeline.sql.types import BIGINT, DOUBLE, INT, STRING, Type


def _real(function: Callable[..., float], *, positive: bool = False) -> Build:
    """A function of doubles with Java's edge cases. ``positive``: null if the argument is not positive."""

    def call(*values: float) -> float | None:
        if positive and values[-1] <= 0:
            return None
        try:
            return function(*values)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        return strict(call, [DOUBLE] * max(len(given), 1), DOUBLE)(name, given, scope)

    return build


def _power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        return math.inf
    return math.pow(base, exponent)


def _log(*values: float) -> float | None:
    if any(value <= 0 for value in values):
        return None
    return math.log(values[-1]) if len(values) == 1 else math.log(values[1]) / math.log(values[0])


def _logarithm(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 2)
    return strict(_log, [DOUBLE] * len(given), DOUBLE)(name, given, scope)


def _abs(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    one = coerced(name, given[0], "number")
    kind = one.type
    function = (lambda value: checked(abs(value), kind)) if kind in types.INTEGERS else abs
    return strict(function, (kind,), kind)(name, [one], scope)


def _whole(function: Callable[[Any], int]) -> Build:
    """``ceil`` and ``floor``."""

    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        if len(given) != 1:
            raise Unsupported(f"{name} with a scale")
        one = coerced(name, given[0], "number")
        if one.type.name == "decimal":
            precision, scale = one.type.size
            kind = types.decimal(precision - scale + 1, 0) if scale else one.type
            return strict(lambda value: fitted(Decimal(function(value)), kind), (one.type,), kind)(
                name, [one], scope
            )

        def to_long(value: Any) -> int:
            if isinstance(value, float) and not math.isfinite(value):
                return 0 if value != value else (1 << 63) - 1 if value > 0 else -(1 << 63)
            return int(function(value))

        return strict(to_long, (one.type,), BIGINT)(name, [one], scope)

    return build


def _round(rounding: str) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 1, 2)
        if len(given) == 2 and not given[1].constant:
            raise AnalysisError(f"{name}(value, digits) needs a constant number of digits")
        digits = coerced(name, given[1], INT).run([]) if len(given) == 2 else 0
        one = coerced(name, given[0], "number")
        step = Decimal(1).scaleb(-digits)

        def rounded(value: Decimal) -> Decimal:
            if digits >= 0:
                return value.quantize(step, rounding=rounding, context=WIDE)
            return (value / step).quantize(Decimal(1), rounding=rounding, context=WIDE) * step

        kind = one.type
        if kind.name == "decimal":
            precision, scale = kind.size
            kept = max(min(scale, digits), 0)
            result = types.decimal(precision - scale + 1 + kept, kept)
            return strict(lambda value: fitted(rounded(value), result), (kind,), result)(name, [one], scope)
        if kind in types.INTEGERS:
            if digits >= 0:
                return one
            return strict(lambda value: checked(int(rounded(Decimal(value))), kind), (kind,), kind)(
                name, [one], scope
            )

        def of_double(value: float) -> float:
            return float(rounded(Decimal(repr(value)))) if math.isfinite(value) else value

        return strict(of_double, (kind,), kind)(name, [one], scope)

    return build


def tried(build: Build) -> Build:
    """The same function, with null instead of an error."""

    def trying(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        made = build(name, given, scope)

        def run(row: list[Any]) -> Any:
            try:
                return made.run(row)
            except BadValue:
                return None

        return Compiled(made.type, run)

    return trying


def _cast_to(kind: Type) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 1, 1)
        return converted(given[0], kind)

    return build


def _sign(value: Any) -> float:
    return value if value != value else float((value > 0) - (value < 0))


def _nanvl(one: float, other: float) -> float:
    return other if one != one else one


def _binary(value: int) -> str:
    return f"{value & (1 << 64) - 1:b}"


_CEIL, _FLOOR = _whole(math.ceil), _whole(math.floor)
_POWER, _SIGN = _real(_power), strict(_sign, (DOUBLE,), DOUBLE)

_CASTS = "tinyint smallint int bigint float double string boolean binary date timestamp".split()  # noqa: SIM905

TABLE: Table = {
    "abs": _abs,
    "ceil": _CEIL,
    "ceiling": _CEIL,
    "floor": _FLOOR,
    "round": _round(ROUND_HALF_UP),
    "bround": _round(ROUND_HALF_EVEN),
    "sqrt": _real(math.sqrt),
    "cbrt": _real(math.cbrt),
    "pow": _POWER,
    "power": _POWER,
    "exp": _real(math.exp),
    "ln": _real(math.log, positive=True),
    "log": _logarithm,
    "log10": _real(math.log10, positive=True),
    "log2": _real(math.log2, positive=True),
    "log1p": _real(math.log1p),
    "sign": _SIGN,
    "signum": _SIGN,
    **{name: _real(getattr(math, name)) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")},
    **{name: _real(getattr(math, name)) for name in ("sinh", "cosh", "tanh", "hypot", "degrees", "radians")},
    "pi": strict(lambda: math.pi, (), DOUBLE),
    "e": strict(lambda: math.e, (), DOUBLE),
    "nanvl": strict(_nanvl, (DOUBLE, DOUBLE), DOUBLE),
    "bin": strict(_binary, (BIGINT,), STRING),
    "bit_count": strict(lambda value: (value & (1 << 64) - 1).bit_count(), (BIGINT,), INT),
    "factorial": strict(lambda value: math.factorial(value) if 0 <= value <= 20 else None, (INT,), BIGINT),
    "try_add": tried(arithmetic("+")),
    "try_subtract": tried(arithmetic("-")),
    "try_multiply": tried(arithmetic("*")),
    "try_divide": tried(arithmetic("/")),
    "try_mod": tried(arithmetic("%")),
    **{name: _cast_to(types.parse(name)) for name in _CASTS},
    "decimal": _cast_to(types.decimal(10, 0)),
}
