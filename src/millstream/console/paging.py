"""Searches long lists by words, and cuts them into pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

PER_PAGE = 50
Order = Literal["asc", "desc"]

T = TypeVar("T")


def has_words(name: str, search: str) -> bool:
    """True if every word of a search is in a name, in any order and case."""
    folded = name.casefold()
    return all(word in folded for word in search.casefold().split())


def cut(found: Sequence[T], page: int, per_page: int) -> tuple[list[T], int, int]:
    """One page, its number and the number of pages. A page number beyond the last means the last."""
    pages = max(1, -(-len(found) // per_page))
    page = min(page, pages)
    return list(found[(page - 1) * per_page : page * per_page]), page, pages
