r"""Regular expressions from clients, matched in time proportional to the text.

Python's own matcher tries one way after the other, and a pattern such as ``(a+)+b`` makes it try more ways
than anybody can wait for; a broker that runs it can be stopped by one request. Kafka uses RE2 for that
reason. Here all ways are followed side by side, as RE2 does, and as in RE2 the sets of ways met are
remembered with where each character led them, so that most characters cost one look-up: thousands of topics'
names are matched in some milliseconds.

Served are characters, ``.``, escapes and classes as Python knows them, groups (with or without a name),
``|``, ``* + ? {m,n}`` (a ``?`` after them changes nothing, as the whole text must match), ``^`` and ``$``,
``\A`` and ``\z``, and ``(?i)`` at the beginning. Back references and looking around are not, nor by RE2.
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
_GROUP_HEAD = re.compile(r"\?(?::|P?<[A-Za-z_]\w*>)")
_REMEMBERED = 10_000  # moves of one pattern; then it starts remembering anew

# Instructions: (CHARACTER, pattern), (SPLIT, one, other), (JUMP, to), (START,), (END,), (MATCH,).
_CHARACTER, _SPLIT, _JUMP, _START, _END, _MATCH = range(6)


class BadPattern(ValueError):
    """This is no pattern that is served here."""


def compile_pattern(text: str) -> Matches:
    """Whether a whole text matches. Raises BadPattern."""
    if len(text) > _LONGEST:
        raise BadPattern(f"the pattern has more than {_LONGEST} characters")
    parser = _Parser(text)
    tree = parser.whole()
    if parser.at < len(text):
        raise BadPattern(f"a group is closed at {parser.at} that was not opened")
    program: list[tuple[Any, ...]] = []
    _emit(tree, program)
    program.append((_MATCH,))
    return _Automaton(program).matches


class _Parser:
    """Makes a tree: ("character", pattern), ("start",), ("end",), ("all", parts), ("one of", parts),
    ("repeat", part, least, most or None)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._flags = re.DOTALL
        self.at = 0

    def whole(self) -> tuple[Any, ...]:
        if self._text.startswith("(?i)"):
            self._flags |= re.IGNORECASE
            self.at = 4
        return self.alternatives(0)

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
                head = _GROUP_HEAD.match(self._text, self.at)
                if head is None:
                    raise BadPattern(
                        f"only groups without a name (?: or with one (?<name> begin so, at {self.at}"
                    )
                self.at = head.end()
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
        if self._text.startswith(("\\A", "\\z"), self.at):
            self.at += 2
            return ("start",) if self._text[self.at - 1] == "A" else ("end",)
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
            return ("character", re.compile(text, self._flags))
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


class _Node:
    """A set of ways through a program, and where each character leads them all."""

    __slots__ = ("ends", "moves", "states")

    def __init__(self, states: frozenset[int]) -> None:
        self.states = states
        self.moves: dict[str, _Node] = {}
        self.ends: dict[str, bool] = {}  # whether the text matches, where this character is its last


class _Automaton:
    """Follows all ways through a program at once; ways met before are not followed again."""

    def __init__(self, program: list[tuple[Any, ...]]) -> None:
        self._program = program
        self._forget()

    def _forget(self) -> None:
        self._start = _Node(_reached(self._program, {0}, at_start=True, at_end=False))
        self._nodes = {self._start.states: self._start}
        self._remembered = 0

    def matches(self, text: str) -> bool:
        if not text:
            return self._is_match(_reached(self._program, {0}, at_start=True, at_end=True))
        node = self._start
        for character in text[:-1]:
            following = node.moves.get(character)
            node = self._move(node, character) if following is None else following
        found = node.ends.get(text[-1])
        if found is None:
            found = node.ends[text[-1]] = self._is_match(self._follow(node.states, text[-1], at_end=True))
        return found

    def _move(self, node: _Node, character: str) -> _Node:
        if self._remembered >= _REMEMBERED:
            self._forget()
        self._remembered += 1
        states = self._follow(node.states, character, at_end=False)
        following = node.moves[character] = self._nodes.setdefault(states, _Node(states))
        return following

    def _follow(self, states: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        program = self._program
        following = {
            state + 1
            for state in states
            if program[state][0] == _CHARACTER and program[state][1](character) is not None
        }
        return _reached(program, following, at_start=False, at_end=at_end)

    def _is_match(self, states: frozenset[int]) -> bool:
        return len(self._program) - 1 in states


def _reached(
    program: list[tuple[Any, ...]], states: set[int], *, at_start: bool, at_end: bool
) -> frozenset[int]:
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
    return frozenset(found)
