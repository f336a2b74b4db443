"""Interprets the type hints of kio's schemas, for ``schema_codec`` and ``request_reader`` alike."""

from __future__ import annotations

import types
import typing
from typing import Any, NamedTuple


class Shape(NamedTuple):
    """A field's type: of the value itself, or of each item if it is an array."""

    hint: Any
    nullable: bool
    is_array: bool


def shape_of(hint: Any) -> Shape:
    """The shape of a hint. For example, ``tuple[X, ...] | None`` is a nullable array of X."""
    nullable = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        nullable = len(options) < len(typing.get_args(hint))
        hint = options[0]
    is_array = typing.get_origin(hint) is tuple
    return Shape(typing.get_args(hint)[0] if is_array else hint, nullable, is_array)
