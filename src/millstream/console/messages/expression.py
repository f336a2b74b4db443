"""The filter language for records: parses expressions and matches records, without I/O.

    $.user.id = 7                           in the decoded value: the field id of the field user
    $.items[0].price >= 9.5                 an index; [-1] is the last one
    $.items[*].sku contains "A-"            any of the items
    $["strange name"] = null                a name that is not a plain word
    $.coupon                                true if the field exists
    not $.coupon and ($.eur > 100 or $.country != "DE")
    key = "c1" and header.trace startswith "00-"
    offset >= 100 and partition = 3 and size > 1000 and timestamp >= 1760000000000

Rules. A comparison is true if it is true for any value that its path leads to. If the path leads nowhere, it
is false, even with ``!=``. Only values of the same kind are compared: 7 is not "7", and true is not 1.
``contains`` finds a text within a text, or an element in a list. There are no patterns, so that no record can
make matching slow: the work is bounded by the length of the expression times the size of the record.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from millstream.core.errors import ConfigError

LONGEST = 1000
_DEEPEST = 50
_ROOTS = ("key", "header", "offset", "partition", "size", "timestamp")
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<operator>==|!=|<=|>=|<>|=|<|>)
    | (?P<mark>[$.()\[\]*])
    | (?P<word>[^\W\d][\w-]*)
    )""",
    re.VERBOSE,
)


class ExpressionError(ConfigError):
    """An expression that can't be parsed. ``at`` is the position of the error, in characters from 0."""

    def __init__(self, message: str, at: int) -> None:
        self.at = at
        super().__init__(f"{message}, at character {at + 1}")


Matcher = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. ``uses`` names the parts of a record that it reads."""

    text: str
    uses: frozenset[str]
    matches: Matcher


def parse(text: str) -> Expression:
    """Parse an expression. Raises an ExpressionError that says what was expected, and where."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has at most {LONGEST} characters", LONGEST)
    parser = _Parser(text)
    matches = parser.either(0)
    if parser.token.kind != "end":
        parser.fail("expected `and`, `or` or the end")
    return Expression(text, frozenset(parser.uses), matches)


# Paths -----------------------------------------------------------------------------------------------

_ANY = object()
Step = Any  # a name, an index, or _ANY


def _walk(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """The values that a path leads to, starting from ``value``."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is _ANY:
        inner: Iterable[Any] = ()
        if isinstance(value, list):
            inner = value
        elif isinstance(value, dict):
            inner = value.values()
        for each in inner:
            yield from _walk(each, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            yield from _walk(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from _walk(value[step], rest)


# Comparisons -----------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _alike(one: Any, other: Any) -> bool:
    if _is_number(one):
        return _is_number(other)
    return type(one) is type(other)


def _equal(one: Any, other: Any) -> bool:
    return _alike(one, other) and bool(one == other)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(one: Any, other: Any) -> bool:
        return _alike(one, other) and isinstance(other, str | int | float) and compare(one, other)

    return holds


def _contains(one: Any, other: Any) -> bool:
    if isinstance(one, str):
        return isinstance(other, str) and other in one
    return isinstance(one, list) and any(_equal(each, other) for each in one)


def _of_texts(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda one, other: isinstance(one, str) and isinstance(other, str) and test(one, other)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": _equal,
    "==": _equal,
    "!=": lambda one, other: not _equal(one, other),
    "<>": lambda one, other: not _equal(one, other),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "contains": _contains,
    "startswith": _of_texts(str.startswith),
    "endswith": _of_texts(str.endswith),
}
_CONSTANTS = {"true": True, "false": False, "null": None}


# Parsing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """A recursive descent parser. ``token`` is the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self.uses: set[str] = set()
        self.token = self._next()

    def _next(self) -> _Token:
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            at = self._end + len(self._text[self._end :]) - len(self._text[self._end :].lstrip())
            if at < len(self._text):
                raise ExpressionError(f"{self._text[at]!r} is not valid here", at)
            return _Token("end", "", at)
        self._end = found.end()
        kind = str(found.lastgroup)
        return _Token(kind, found[kind], found.start(kind))

    def take(self) -> _Token:
        taken, self.token = self.token, self._next()
        return taken

    def took(self, text: str) -> bool:
        """Consume the next token and return True if it is this mark or word."""
        if self.token.kind in ("mark", "word") and self.token.text.lower() == text:
            self.take()
            return True
        return False

    def fail(self, message: str) -> NoReturn:
        found = f", not {self.token.text!r}" if self.token.text else ""
        raise ExpressionError(message + found, self.token.at)

    # Grammar: either = both {"or" both};  both = one {"and" one};
    #          one = "not" one | "(" either ")" | path [comparison constant]

    def either(self, depth: int) -> Matcher:
        if depth > _DEEPEST:
            self.fail("it is nested too deeply")
        choices = [self._both(depth)]
        while self.took("or"):
            choices.append(self._both(depth))
        return choices[0] if len(choices) == 1 else lambda record: any(each(record) for each in choices)

    def _both(self, depth: int) -> Matcher:
        needed = [self._one(depth)]
        while self.took("and"):
            needed.append(self._one(depth))
        return needed[0] if len(needed) == 1 else lambda record: all(each(record) for each in needed)

    def _one(self, depth: int) -> Matcher:
        if depth > _DEEPEST:
            self.fail("it is nested too deeply")
        if self.took("not"):
            inner = self._one(depth + 1)
            return lambda record: not inner(record)
        if self.took("("):
            inner = self.either(depth + 1)
            if not self.took(")"):
                self.fail("expected `)`")
            return inner
        root, steps = self._path()
        self.uses.add(root)

        def values(record: Mapping[str, Any]) -> Iterator[Any]:
            return _walk(record[root], steps) if root in record else iter(())

        compare = self._comparison()
        if compare is None:
            return lambda record: next(values(record), _ANY) is not _ANY
        wanted = self._constant()
        return lambda record: any(compare(value, wanted) for value in values(record))

    def _comparison(self) -> Callable[[Any, Any], bool] | None:
        if self.token.kind == "operator" or (
            self.token.kind == "word" and self.token.text.lower() in _COMPARISONS
        ):
            return _COMPARISONS[self.take().text.lower()]
        return None

    def _path(self) -> tuple[str, tuple[Step, ...]]:
        if self.took("$"):
            root = "value"
        elif self.token.kind == "word" and self.token.text in _ROOTS:
            root = self.take().text
        else:
            self.fail(f"expected a path: $.name of the value, or {', '.join(_ROOTS)}")
        steps: list[Step] = []
        while True:
            if self.took("."):
                steps.append(_ANY if self.took("*") else self._name())
            elif self.took("["):
                steps.append(_ANY if self.took("*") else self._index())
                if not self.took("]"):
                    self.fail("expected `]`")
            else:
                return root, tuple(steps)

    def _name(self) -> str:
        if self.token.kind != "word":
            self.fail("expected the name of a field")
        return self.take().text

    def _index(self) -> Step:
        if self.token.kind == "text":
            return _unquoted(self.take())
        if self.token.kind == "number" and re.fullmatch(r"-?\d{1,9}", self.token.text):
            return int(self.take().text)
        return self.fail('expected an index, a name in quotes or `*`, as in [0], ["name"] or [*]')

    def _constant(self) -> Any:
        token = self.token
        if token.kind == "text":
            return _unquoted(self.take())
        if token.kind == "number":
            return json.loads(_json_number(self.take()))
        if token.kind == "word" and token.text.lower() in _CONSTANTS:
            return _CONSTANTS[self.take().text.lower()]
        return self.fail('expected a value: 7, "text", true, false or null')


def _json_number(token: _Token) -> str:
    if re.match(r"-?0\d", token.text):
        raise ExpressionError(f"{token.text} is not a number", token.at)
    return token.text


def _unquoted(token: _Token) -> str:
    text = token.text
    if text[0] == "'":  # rewrite it as a JSON string
        inner = re.sub(r"\\'|\"", lambda found: "'" if found[0] == "\\'" else '\\"', text[1:-1])
        text = f'"{inner}"'
    try:
        return str(json.loads(text))
    except ValueError:
        raise ExpressionError(f"{token.text} is not a text as JSON writes it", token.at) from None
