"""Which files belong together: a log file and the files that rotation makes of it.

One family, for example:

    access.log                        the file that is written
    access.log.1, access.log.2.gz     what logrotate makes of it
    access.log-20260101(.gz)          with dateext
    access-20260101.log(.gz)          with an extension that is kept
    access.log.old
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from millstream.integration.files.content import FileStat

_SUFFIX = r"[.\-_](?:\d[\d.\-_T:]*|old)"


class Candidate(NamedTuple):
    """A file that may have lines to read. ``family`` is the path of the file that is written. ``rotated``
    is True if rotation made this file of it, ``named`` if the user's patterns name it."""

    place: FileStat
    family: str
    rotated: bool
    named: bool


def candidates(patterns: Sequence[str]) -> list[Candidate]:
    """The files that the patterns name and those that rotation made of them, oldest first within a family.

    Names that follow one scheme say which is older: ``.2`` is older than ``.1``, and dates speak for
    themselves. If a family has both schemes or another one, the times of the files decide."""
    named: set[str] = set()
    for pattern in patterns:
        named.update(glob.glob(pattern, recursive=True) if glob.has_magic(pattern) else [pattern])
    families: list[str] = []
    found: dict[str, tuple[str, bool]] = {}
    for path in sorted(named, key=lambda path: (len(path), path)):
        family = next((known for known in families if is_rotated(path, known)), None)
        if family is None:
            families.append(path)
        found[path] = (family or path, family is not None)
    for family in families:
        stem = os.path.splitext(family)[0]
        for path in glob.glob(glob.escape(stem) + "[._-]*"):
            if path not in found and is_rotated(path, family):
                found[path] = (family, True)
    there = [
        Candidate(place, family, rotated, path in named)
        for path, (family, rotated) in found.items()
        if (place := FileStat.of(path)) is not None
    ]
    by_family: dict[str, list[Candidate]] = {}
    for each in there:
        by_family.setdefault(each.family, []).append(each)
    return [each for _, members in sorted(by_family.items()) for each in _oldest_first(members)]


def _oldest_first(members: list[Candidate]) -> list[Candidate]:
    rotated = [each for each in members if each.rotated]
    written = [each for each in members if not each.rotated]
    ages = {each: _age(each) for each in rotated}
    schemes = {age and age[0] for age in ages.values()}
    if len(schemes) == 1 and None not in schemes:
        rotated.sort(key=lambda each: (ages[each], each.place.modified_ns, each.place.path))
    else:
        rotated.sort(key=lambda each: (each.place.modified_ns, each.place.path))
    return rotated + written


def _age(rotated: Candidate) -> tuple[str, list[int]] | None:
    """What a name says about the age of its file: the scheme, and a key that sorts older files first."""
    stem = os.path.splitext(rotated.family)[0]
    numbers = [int(digits) for digits in re.findall(r"\d+", rotated.place.path[len(stem) :])]
    if not numbers:
        return None
    if len(numbers) == 1 and numbers[0] < 10_000:
        return "number", [-numbers[0]]
    return "date", numbers


def is_rotated(path: str, family: str) -> bool:
    """True if rotation may have made ``path`` of ``family``."""
    stem, extension = os.path.splitext(family)
    if not path.startswith(stem):
        return False
    kept = re.escape(stem) + _SUFFIX + re.escape(extension) if extension else "(?!)"
    return bool(re.fullmatch(rf"(?:{re.escape(family)}{_SUFFIX}|{kept})(?:\.gz)?", path))
