"""``hash()``: Murmur3 as Spark computes it, which mixes the last bytes one by one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Compiled, Scope, Table, check_count
from millstream.pipeline.sql.casts import micros
from millstream.pipeline.sql.nodes import Unsupported
from millstream.pipeline.sql.types import INT, Type

_WORD = 0xFFFFFFFF
_SEED = 42
_EXACT = Context(prec=38)  # the most digits that a Spark decimal has


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _WORD


def _mixed(seed: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    return (_rotated(seed ^ word, 13) * 5 + 0xE6546B64) & _WORD


def _finished(seed: int, length: int) -> int:
    seed ^= length
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & _WORD
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & _WORD
    return seed ^ seed >> 16


def _int(value: int, seed: int) -> int:
    return _finished(_mixed(seed, value & _WORD), 4)


def _long(value: int, seed: int) -> int:
    return _finished(_mixed(_mixed(seed, value & _WORD), value >> 32 & _WORD), 8)


def _bytes(data: bytes, seed: int) -> int:
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        seed = _mixed(seed, word)
    for (one,) in struct.iter_unpack("b", data[whole:]):
        seed = _mixed(seed, one & _WORD)
    return _finished(seed, len(data))


def _as_java_has_it(value: int) -> bytes:
    """``BigInteger.toByteArray``: as few bytes as possible, including the sign."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _function(kind: Type) -> Callable[[Any, int], int]:
    if kind in (types.BOOLEAN, types.TINYINT, types.SMALLINT, types.INT):
        return _int
    if kind == types.BIGINT:
        return _long
    if kind == types.STRING:
        return lambda value, seed: _bytes(value.encode(), seed)
    if kind == types.BINARY:
        return _bytes
    if kind == types.DOUBLE:
        return lambda value, seed: _long(struct.unpack("<q", struct.pack("<d", value + 0.0))[0], seed)
    if kind == types.FLOAT:
        return lambda value, seed: _int(struct.unpack("<i", struct.pack("<f", value + 0.0))[0], seed)
    if kind == types.TIMESTAMP:
        return lambda value, seed: _long(micros(value), seed)
    if kind == types.DATE:
        return lambda value, seed: _int(value.toordinal() - 719163, seed)
    if kind.name == "decimal":
        precision, scale = kind.size
        if precision <= 18:
            return lambda value, seed: _long(int(Decimal(value).scaleb(scale)), seed)
        return lambda value, seed: _bytes(_as_java_has_it(int(Decimal(value).scaleb(scale, _EXACT))), seed)
    raise Unsupported(f"hash of {kind.text}")


def _hash(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, None)
    parts = [(one.run, _function(one.type)) for one in given]

    def run(row: list[Any]) -> int:
        seed = _SEED
        for value_of, function in parts:
            value = value_of(row)
            if value is not None:
                seed = function(value, seed)
        return seed - (1 << 32) if seed >> 31 else seed

    return Compiled(INT, run)


TABLE: Table = {"hash": _hash}
