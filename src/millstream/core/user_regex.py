"""Regular expressions from users, matched in time proportional to the text.

Python's own matcher backtracks: a pattern such as ``(a+)+b`` keeps it busy for longer than anybody can
wait, and one request would stop a server. Kafka's matcher is RE2/J; millstream's is RE2 itself
(``google-re2``), with bounded memory. Without that package only plain prefixes are supported: ``orders``,
``orders-.*``.

RE2 and RE2/J differ in one way that matters: RE2 takes a repetition with a huge count for plain text, while
RE2/J refuses every count above 1000. So millstream refuses those before RE2 sees the pattern. RE2 also
expands counts and Unicode classes before it finds out that the result is too large: a pattern of 32 KB kept
it busy for 0.6 s. So the sum of all counts and the number of Unicode classes are bounded too. A pattern
within these bounds takes about 20 ms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

try:
    import re2
except ImportError:
    re2 = None

Matches = Callable[[str], bool]

LONGEST = 32_767  # bytes of a pattern, as in Kafka's protocol
MOST_REPETITIONS = 1000
MOST_REPETITIONS_IN_ALL = 2000
MOST_UNICODE_CLASSES = 100
_MEMORY = 1024 * 1024  # bytes that RE2 may take for one pattern
_COMPILED = 64  # compiled patterns kept
_REMEMBERED = 100_000  # texts of one pattern, with their answers

# A pattern's tokens, as far as counts matter: braces in classes, in quotes and after a backslash are not
# counts. A part that is not closed extends to the end, so that nothing is looked at twice.
_TOKEN = re.compile(
    r"\\Q(?:[^\\]|\\(?!E))*(?:\\E|\Z)"
    r"|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*(?:\]|\Z)"
    r"|\\."
    r"|\{(\d+)(?:,(\d*))?\}"
    r"|.",
    re.DOTALL,
)
_UNICODE_CLASS = re.compile(r"\\[pP]")
_PREFIX = re.compile(r"\^?((?:[\w-]|\\\.)*)(\.\*)?\$?", re.ASCII)


class BadPattern(ValueError):
    """The pattern is not supported; the message says why."""


class Pattern:
    """A compiled pattern. It remembers texts with their answers."""

    __slots__ = ("_matches", "_remembered")

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._remembered: dict[str, bool] = {}

    def __call__(self, text: str) -> bool:
        """True if the whole text matches."""
        known = self._remembered.get(text)
        if known is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            known = self._remembered[text] = self._matches(text)
        return known


@lru_cache(maxsize=_COMPILED)
def compile_pattern(text: str) -> Pattern:
    """A function that returns True if a whole text matches. Raises BadPattern."""
    if re2 is None:
        return Pattern(_prefix(text))
    search = _compile(text).fullmatch
    return Pattern(lambda name: search(name) is not None)


def search_pattern(text: str) -> Matches:
    """A function that returns True if a text contains a match. Raises BadPattern."""
    if re2 is None:
        raise BadPattern("install google-re2 to match regular expressions")
    search = _compile(text).search
    return lambda name: search(name) is not None


def _compile(text: str) -> re2._Regexp:
    if len(text.encode(errors="replace")) > LONGEST:
        raise BadPattern(f"it has more than {LONGEST} bytes")
    _check_expansion(text)
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        raise BadPattern(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


def _check_expansion(text: str) -> None:
    in_all = 0
    for token in _TOKEN.finditer(text):
        counts = [count for count in token.groups() if count]
        if any(len(count) > 9 or int(count) > MOST_REPETITIONS for count in counts):
            raise BadPattern(f"{token.group()} repeats more than {MOST_REPETITIONS} times")
        in_all += max(map(int, counts), default=0)
    if in_all > MOST_REPETITIONS_IN_ALL:
        raise BadPattern(f"its counts add up to more than {MOST_REPETITIONS_IN_ALL} repetitions")
    if len(_UNICODE_CLASS.findall(text)) > MOST_UNICODE_CLASSES:
        raise BadPattern(f"it has more than {MOST_UNICODE_CLASSES} Unicode classes")


def _prefix(text: str) -> Matches:
    """What is supported without RE2: text, and text followed by anything."""
    found = _PREFIX.fullmatch(text)
    if found is None:
        raise BadPattern(
            "this broker runs without google-re2, so only a plain prefix such as `orders-.*` is served; "
            "install the package to have other patterns matched"
        )
    start, is_open = found[1].replace("\\.", "."), found[2]
    return (lambda name: name.startswith(start)) if is_open else (lambda name: name == start)
