"""Regular expressions from clients, matched in time proportional to the text.

Python's own matcher tries one way after the other, and a pattern such as ``(a+)+b`` makes it try more ways
than anybody can wait for; a broker that runs it can be stopped by one request. Kafka uses RE2 for that
reason. Here all ways are followed side by side, as RE2 does.

Served are characters, ``.``, escapes and classes as Python knows them, groups, ``|``, ``* + ? {m,n}`` (a
``?`` after them changes nothing, as the whole text must match), ``^`` and ``$``. Back references and looking
around are not, nor by RE2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Matches = Callable[[str], bool]

_LONGEST = 1000  # characters of a pattern
_DEEPEST = 50  # groups in groups
_LARGEST = 10_000  # instructions; a {1000} of a {1000} is refused
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")
_ESCAPE = re.compile(r"\\(?:[dDsSwW]|[^0-9A-Za-z]|[fnrtv]|x[0-9a-fA-F]{2})")

# Instructions: (CHARACTER, pattern), (SPLIT, one, other), (JUMP, to), (START,), (END,), (MATCH,).
_CHARACTER, _SPLIT, _JUMP, _START, _END, _MATCH = range(6)


class BadPattern(ValueError):
    """This is no pattern that is served here."""


def compile_pattern(text: str) -> Matches:
    """Whether a whole text matches. Raises BadPattern."""
    if len(text) > _LONGEST:
        raise BadPattern(f"the pattern has more than {_LONGEST} characters")
    parser = _Parser(text)
    tree = parser.alternatives(0)
    if parser.at < len(text):
        raise BadPattern(f"a group is closed at {parser.at} that was not opened")
    program: list[tuple[Any, ...]] = []
    _emit(tree, program)
    program.append((_MATCH,))
    return lambda candidate: _matches(program, candidate)


class _Parser:
    """Makes a tree: ("character", pattern), ("start",), ("end",), ("all", parts), ("one of", parts),
    ("repeat", part, least, most or None)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def _next(self) -> str:
        return self._text[self.at : self.at + 1]

    def alternatives(self, depth: int) -> tuple[Any, ...]:
        if depth > _DEEPEST:
            raise BadPattern("groups are nested too deeply")
        parts = [self._sequence(depth)]
        while self._next() == "|":
            self.at += 1
            parts.append(self._sequence(depth))
        return ("one of", parts) if len(parts) > 1 else parts[0]

    def _sequence(self, depth: int) -> tuple[Any, ...]:
        parts = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._single(depth)))
        return ("all", parts)

    def _single(self, depth: int) -> tuple[Any, ...]:
        character = self._next()
        if character == "(":
            self.at += 1
            if self._next() == "?":
                if self._text[self.at : self.at + 2] != "?:":
                    raise BadPattern(f"only (?: is served at {self.at}")
                self.at += 2
            inside = self.alternatives(depth + 1)
            if self._next() != ")":
                raise BadPattern("a group is not closed")
            self.at += 1
            return inside
        if character in "*+?":
            raise BadPattern(f"there is nothing to repeat at {self.at}")
        if character in "^$":
            self.at += 1
            return ("start",) if character == "^" else ("end",)
        if character in "[\\":
            found = (_CLASS if character == "[" else _ESCAPE).match(self._text, self.at)
            if found is None:
                raise BadPattern(f"what begins at {self.at} is not served")
            self.at = found.end()
            text = found.group()
        else:
            self.at += 1
            text = "." if character == "." else re.escape(character)
        try:
            return ("character", re.compile(text, re.DOTALL))
        except re.error as error:
            raise BadPattern(str(error)) from None

    def _repeated(self, part: tuple[Any, ...]) -> tuple[Any, ...]:
        while True:
            character = self._next()
            found = _REPEAT.match(self._text, self.at) if character == "{" else None
            if character and character in "*+?":
                self.at += 1
                part = ("repeat", part, int(character == "+"), 1 if character == "?" else None)
            elif found is not None:
                self.at = found.end()
                least, comma, most = found.groups()
                end = None if comma and not most else int(most or least)
                if end is not None and end < int(least):
                    raise BadPattern(f"{found.group()} asks for less than it asks for")
                part = ("repeat", part, int(least), end)
            else:
                return part
            if self._next() == "?":
                self.at += 1


def _emit(tree: tuple[Any, ...], program: list[tuple[Any, ...]]) -> None:
    if len(program) > _LARGEST:
        raise BadPattern("the pattern is too large")
    kind = tree[0]
    if kind == "character":
        program.append((_CHARACTER, tree[1].match))
    elif kind in ("start", "end"):
        program.append((_START if kind == "start" else _END,))
    elif kind == "all":
        for part in tree[1]:
            _emit(part, program)
    elif kind == "one of":
        jumps = []
        for part in tree[1][:-1]:
            split = len(program)
            program.append(())
            _emit(part, program)
            jumps.append(len(program))
            program.append(())
            program[split] = (_SPLIT, split + 1, len(program))
        _emit(tree[1][-1], program)
        for jump in jumps:
            program[jump] = (_JUMP, len(program))
    else:
        _, part, least, most = tree
        for _ in range(least):
            _emit(part, program)
        splits = []
        for _ in range(1 if most is None else most - least):
            splits.append(len(program))
            program.append(())
            _emit(part, program)
        if most is None:
            program.append((_JUMP, splits[0]))
        for split in splits:
            program[split] = (_SPLIT, split + 1, len(program))


def _matches(program: list[tuple[Any, ...]], text: str) -> bool:
    states = _reached(program, {0}, at_start=True, at_end=not text)
    for position, character in enumerate(text):
        following = {
            state + 1
            for state in states
            if program[state][0] == _CHARACTER and program[state][1](character) is not None
        }
        states = _reached(program, following, at_start=False, at_end=position + 1 == len(text))
        if not states:
            return False
    return len(program) - 1 in states


def _reached(program: list[tuple[Any, ...]], states: set[int], *, at_start: bool, at_end: bool) -> set[int]:
    """All states that these lead to without another character."""
    found: set[int] = set()
    waiting = list(states)
    while waiting:
        state = waiting.pop()
        if state in found:
            continue
        found.add(state)
        instruction = program[state]
        kind = instruction[0]
        if kind in (_SPLIT, _JUMP):
            waiting += instruction[1:]
        elif (kind == _START and at_start) or (kind == _END and at_end):
            waiting.append(state + 1)
    return found
