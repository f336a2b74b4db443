"""Parses Spark SQL expressions, as in ``where``, ``select`` and keys, to a tree; but no queries."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from decimal import Decimal

from millstream.pipeline.sql import types
from millstream.pipeline.sql.nodes import (
    Alias,
    AnalysisError,
    Call,
    Cast,
    Column,
    Lambda,
    Literal,
    Node,
    Star,
    Unsupported,
)
from millstream.pipeline.sql.types import Type

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>[rRxX]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF](?!\w))?)
      | (?P<word>[^\W\d]\w*)
      | (?P<mark><=>|<>|!=|==|<=|>=|\|\||->|=>|::|<<|>>|[-+*/%=<>().,\[\]!~&|^:])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
# The binding power of operators between two values.
_POWER = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">="), 5),
    **dict.fromkeys(("in", "between", "like", "ilike", "rlike", "regexp", "is"), 5),
    "|": 6,
    "^": 7,
    "&": 8,
    **dict.fromkeys(("<<", ">>"), 9),
    **dict.fromkeys(("+", "-", "||"), 10),
    **dict.fromkeys(("*", "/", "%", "div"), 11),
}
_NOT, _SIGN = 3, 12
_SAME = {"==": "=", "<>": "!=", "regexp": "rlike"}
_UNITS = {
    **dict.fromkeys(("microsecond", "microseconds"), 1),
    **dict.fromkeys(("millisecond", "milliseconds"), 1000),
    **dict.fromkeys(("second", "seconds"), 1_000_000),
    **dict.fromkeys(("minute", "minutes"), 60_000_000),
    **dict.fromkeys(("hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("day", "days"), 86_400_000_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000_000),
}
_MONTH_UNITS = {**dict.fromkeys(("month", "months"), 1), **dict.fromkeys(("year", "years"), 12)}
_WITHOUT_PARENTHESES = ("current_date", "current_timestamp", "localtimestamp")
_WORDS = "then else when end and or as from for in between is not"
_ENDS = frozenset(_WORDS.split())


@functools.lru_cache(maxsize=4096)
def parse(sql: str) -> Node:
    """Parse an expression, with its alias if it has one."""
    return _Parser(sql).whole()


class _Parser:
    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(sql):
            match = _TOKEN.match(sql, position)
            if match is None:
                found = sql[position]
                is_quote = found in "'\"`"
                wrong = f"a quote ({found}) is not closed" if is_quote else f"{found!r} is not valid SQL"
                raise AnalysisError(f"{sql!r} at {position + 1}: {wrong}")
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match[0]))
            position = match.end()
        self.at = 0

    def whole(self) -> Node:
        node = self.named(self.expression())
        if self.at < len(self.tokens):
            raise self.wrong()
        return node

    def named(self, node: Node) -> Node:
        """Parse an alias, with or without AS."""
        kind, text = self.peek()
        if self.word("as"):
            kind, text = self.peek()
            if kind not in ("word", "quoted"):
                raise self.wrong()
        elif kind not in ("word", "quoted") or text.lower() in _ENDS:
            return node
        self.at += 1
        return Alias(node, _unquoted(kind, text))

    # ---- expressions by binding power ---------------------------------------------------------------

    def expression(self, least: int = 0) -> Node:
        left = self.prefix()
        while True:
            negated = self.peek()[1].lower() == "not" and self.peek(1)[1].lower() in (
                "in",
                "between",
                "like",
                "ilike",
                "rlike",
                "regexp",
            )
            sign = self.peek(1 if negated else 0)[1].lower()
            if self.peek()[0] in ("text", "quoted", "number", "end"):
                return left
            power = _POWER.get(sign)
            if power is None or power <= least:
                return left
            self.at += 2 if negated else 1
            left = self.infix(left, sign, power)
            if negated:
                left = Call("not", (left,))

    def infix(self, left: Node, sign: str, power: int) -> Node:
        if sign == "in":
            self.expect("(")
            return Call("in", (left, *self.listed(")")))
        if sign == "between":
            low = self.expression(5)
            self.keyword("and")
            high = self.expression(5)
            return Call("between", (left, low, high))
        if sign in ("like", "ilike", "rlike", "regexp"):
            for every in ("any", "some", "all"):
                if self.peek()[1].lower() == every:
                    raise Unsupported(f"{sign.upper()} {every.upper()}")
            pattern = self.expression(power)
            if self.word("escape"):
                return Call(sign, (left, pattern, self.expression(power)))
            return Call(_SAME.get(sign, sign), (left, pattern))
        if sign == "is":
            return self.being(left)
        right = self.expression(power)
        return Call(_SAME.get(sign, sign), (left, right))

    def being(self, left: Node) -> Node:
        negated = self.word("not")
        made: Node
        if self.word("null"):
            made = Call("isnull", (left,))
        elif self.word("true") or self.word("false"):
            value = self.tokens[self.at - 1][1].lower() == "true"
            made = Call("<=>", (left, Literal(value, types.BOOLEAN)))
        elif self.word("distinct"):
            self.keyword("from")
            made = Call("not", (Call("<=>", (left, self.expression(5))),))
        else:
            raise self.wrong()
        return Call("not", (made,)) if negated else made

    def prefix(self) -> Node:
        if self.word("not") or self.mark("!"):
            return Call("not", (self.expression(_NOT),))
        if self.mark("-"):
            inside = self.expression(_SIGN)
            if isinstance(inside, Literal) and types.is_number(inside.type):
                return Literal(-inside.value, inside.type)
            return Call("negative", (inside,))
        if self.mark("+"):
            return Call("positive", (self.expression(_SIGN),))
        if self.mark("~"):
            return Call("~", (self.expression(_SIGN),))
        return self.followed(self.primary())

    def followed(self, node: Node) -> Node:
        """Parse fields, elements and casts after a value."""
        while True:
            if self.mark("."):
                if self.mark("*"):
                    return Star(node)
                kind, text = self.next()
                if kind not in ("word", "quoted"):
                    raise self.wrong(back=1)
                field = _unquoted(kind, text)
                if isinstance(node, Column):
                    node = Column((*node.parts, field))
                else:
                    node = Call(".", (node, Literal(field, types.STRING)))
            elif self.mark("["):
                node = Call("[]", (node, self.expression()))
                self.expect("]")
            elif self.mark("::"):
                node = Cast(node, self.type())
            else:
                return node

    # ---- values -------------------------------------------------------------------------------------

    def primary(self) -> Node:
        kind, text = self.next()
        if kind == "text":
            return self.text(text)
        if kind == "number":
            return _number(text)
        if kind == "quoted":
            return Column((_unquoted(kind, text),))
        if text == "(":
            return self.parenthesis()
        if text == "*":
            return Star()
        if kind == "word":
            return self.of_word(text)
        raise self.wrong(back=1)

    def text(self, text: str) -> Node:
        found = _text(text)
        while self.peek()[0] == "text" and self.peek()[1][0] in "'\"":  # adjacent texts are one
            found = Literal(found.value + _text(self.next()[1]).value, types.STRING)
        return found

    def parenthesis(self) -> Node:
        first = self.expression()
        if self.peek()[1] == ",":
            parts = [first]
            while self.mark(","):
                parts.append(self.expression())
            self.expect(")")
            if self.mark("->"):
                return Lambda(tuple(_variable(part) for part in parts), self.expression())
            return Call("struct", tuple(parts))
        self.expect(")")
        if self.peek()[1] == "->" and isinstance(first, Column):
            self.at += 1
            return Lambda((_variable(first),), self.expression())
        return first

    def of_word(self, text: str) -> Node:
        word = text.lower()
        if self.peek()[1] == "->":
            self.at += 1
            return Lambda((word,), self.expression())
        if word in _ENDS:
            raise self.wrong(back=1)
        if word in ("true", "false"):
            return Literal(word == "true", types.BOOLEAN)
        if word == "null":
            return Literal(None, types.VOID)
        if word == "case":
            return self.case()
        if word == "interval":
            return self.interval()
        if word in ("date", "timestamp", "timestamp_ntz", "timestamp_ltz") and self.peek()[0] == "text":
            return Cast(_text(self.next()[1]), types.parse(word))
        if self.peek()[1] == "(":
            self.at += 1
            return self.call(word)
        if word in _WITHOUT_PARENTHESES:
            return Call(word)
        return Column((text,))

    def call(self, name: str) -> Node:
        if name in ("cast", "try_cast"):
            inside = self.expression()
            self.keyword("as")
            kind = self.type()
            self.expect(")")
            return Cast(inside, kind, tries=name == "try_cast")
        if name == "extract":
            unit = self.next()[1]
            self.keyword("from")
            inside = self.expression()
            self.expect(")")
            return Call("date_part", (Literal(unit.lower(), types.STRING), inside))
        if name == "trim":
            return self.trim()
        if name == "position":
            part = self.expression(_POWER["in"])
            if self.word("in"):
                inside = self.expression()
                self.expect(")")
                return Call("locate", (part, inside))
            self.expect(",")
            return Call("locate", (part, *self.listed(")")))
        if name in ("timestampadd", "timestampdiff", "dateadd", "datediff") and self.peek()[0] == "word":
            unit = self.peek()[1].lower()
            if self.peek(1)[1] == "," and (unit in _UNITS or unit in _MONTH_UNITS or unit == "quarter"):
                self.at += 1
                self.expect(",")
                rest = self.listed(")")
                if len(rest) == 2:
                    return Call(
                        f"timestamp{name[-4:] if name.endswith('diff') else 'add'}",
                        (Literal(unit, types.STRING), *rest),
                    )
        distinct = self.word("distinct")
        arguments = self.listed(")")
        if self.peek()[1].lower() in ("over", "filter", "within"):
            raise Unsupported(f"{name}(...) {self.peek()[1].upper()}")
        return Call(name, tuple(arguments), distinct)

    def trim(self) -> Node:
        side = "trim"
        for word, function in (("both", "trim"), ("leading", "ltrim"), ("trailing", "rtrim")):
            if self.word(word):
                side = function
        if self.word("from"):
            inside = self.expression()
            self.expect(")")
            return Call(side, (inside,))
        first = self.expression()
        if self.word("from"):
            inside = self.expression()
            self.expect(")")
            return Call(side, (first, inside))
        rest = [self.expression() for _ in iter(lambda: self.mark(","), False)]
        self.expect(")")
        return Call(side, (first, *rest))

    def listed(self, end: str) -> list[Node]:
        found: list[Node] = []
        if self.mark(end):
            return found
        while True:
            node = self.expression()
            found.append(self.named(node))
            if self.peek()[1].lower() in ("from", "for", "in"):  # substring(a FROM 1 FOR 2)
                self.at += 1
                continue
            if not self.mark(","):
                break
        self.expect(end)
        return found

    def case(self) -> Node:
        subject = None if self.peek()[1].lower() == "when" else self.expression()
        parts: list[Node] = []
        while self.word("when"):
            condition = self.expression()
            self.keyword("then")
            parts += [condition if subject is None else Call("=", (subject, condition)), self.expression()]
        if self.word("else"):
            parts.append(self.expression())
        self.keyword("end")
        return Call("case", tuple(parts))

    def interval(self) -> Node:
        """Parse ``INTERVAL 1 DAY 2 HOURS`` or ``INTERVAL '5' MINUTE``."""
        if self.peek()[0] == "text" and self.peek(1)[1].lower() not in (*_UNITS, *_MONTH_UNITS):
            inside = _text(self.next()[1]).value
            words = re.findall(r"-?\d+(?:\.\d+)?|[a-zA-Z]+", str(inside))
        else:
            words = []
            while self.peek()[0] in ("number", "text") or self.peek()[1] == "-":
                sign = "-" if self.mark("-") else ""
                words += [sign + self.next()[1].strip("'\""), self.next()[1]]
                if self.peek()[1].lower() == "to":
                    raise Unsupported("INTERVAL ... TO ...")
        micros = months = 0
        try:
            for number, unit in zip(words[::2], words[1::2], strict=True):
                if unit.lower() in _MONTH_UNITS:
                    months += int(number) * _MONTH_UNITS[unit.lower()]
                else:
                    micros += int(Decimal(number) * _UNITS[unit.lower()])
        except (KeyError, ValueError, ArithmeticError):
            raise self.wrong() from None
        if not words or (micros and months):
            raise Unsupported("an interval of months and days together")
        if any(unit.lower() in _MONTH_UNITS for unit in words[1::2]):
            return Literal(months, types.MONTHS)
        days = all(unit.lower() in ("day", "days") for unit in words[1::2])
        return Literal(timedelta(microseconds=micros), types.DAYS if days else types.DAYTIME)

    def type(self) -> Type:
        """Parse a type: a word, and what is in <> or () after it."""
        start, depth = self.at, 0
        self.next()
        while self.peek()[1] in ("<", "(") or depth:
            depth += {"<": 1, "(": 1, ">": -1, ")": -1, ">>": -2}.get(self.next()[1], 0)
        text = "".join(part for _, part in self.tokens[start : self.at])
        try:
            return types.parse(text)
        except (ValueError, IndexError):
            raise Unsupported(f"the type {text}") from None

    # ---- tokens -------------------------------------------------------------------------------------

    def peek(self, further: int = 0) -> tuple[str, str]:
        at = self.at + further
        return self.tokens[at] if at < len(self.tokens) else ("end", "")

    def next(self) -> tuple[str, str]:
        token = self.peek()
        if token[0] == "end":
            raise self.wrong()
        self.at += 1
        return token

    def mark(self, text: str) -> bool:
        if self.peek() == ("mark", text):
            self.at += 1
            return True
        return False

    def word(self, text: str) -> bool:
        kind, found = self.peek()
        if kind == "word" and found.lower() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.mark(text):
            raise self.wrong()

    def keyword(self, text: str) -> None:
        if not self.word(text):
            raise self.wrong()

    def wrong(self, *, back: int = 0) -> AnalysisError:
        kind, text = self.peek(-back)
        return AnalysisError(
            f"Syntax error in {self.sql!r} at " + ("its end" if kind == "end" else f"or near {text!r}")
        )


def _variable(node: Node) -> str:
    if not isinstance(node, Column) or len(node.parts) != 1:
        raise AnalysisError("names are expected before ->")
    return node.parts[0].lower()


def _unquoted(kind: str, text: str) -> str:
    return text[1:-1].replace("``", "`") if kind == "quoted" else text


def _text(token: str) -> Literal:
    if token[0] in "xX":
        return Literal(bytes.fromhex(token[2:-1]), types.BINARY)
    if token[0] in "rR":
        return Literal(token[2:-1], types.STRING)
    quote, inside = token[0], token[1:-1]
    inside = inside.replace(quote * 2, quote) if "\\" not in inside else inside

    def escaped(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        mark = match[2]
        return "\\" + mark if mark in "%_" else _ESCAPES.get(mark, mark)

    return Literal(re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", escaped, inside, flags=re.DOTALL), types.STRING)


def _number(text: str) -> Literal:
    upper = text.upper()
    if upper.endswith("BD"):
        return _decimal(text[:-2])
    suffix = upper[-1] if upper[-1] in "LSYDF" else ""
    if suffix in ("L", "S", "Y"):
        return Literal(int(text[:-1]), {"L": types.BIGINT, "S": types.SMALLINT, "Y": types.TINYINT}[suffix])
    if suffix:
        return Literal(float(text[:-1]), types.DOUBLE if suffix == "D" else types.FLOAT)
    if "E" in upper:
        return Literal(float(text), types.DOUBLE)
    if "." in text:
        return _decimal(text)
    value = int(text)
    if value < 1 << 31:
        return Literal(value, types.INT)
    return Literal(value, types.BIGINT) if value < 1 << 63 else _decimal(text)


def _decimal(text: str) -> Literal:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return Literal(value, types.decimal(max(len(digits), scale), scale))
