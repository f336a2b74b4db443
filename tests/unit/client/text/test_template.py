from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.text.lines import json_parser
from millstream.client.text.template import Template, as_json, printable, utc
from millstream.core.errors import ConfigError


@dataclass
class Fake:
    """What a template reads of a record."""

    key_: bytes | None = b"k"
    value_: bytes | None = b"v"
    headers_: list[tuple[str, bytes | None]] | None = field(
        default_factory=lambda: [("a", b"1"), ("b", None)]
    )
    timestamp_: tuple[int, int] = (1, 1_767_225_600_250)

    def topic(self) -> str:
        return "payments"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 47

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (r"%t[%p]@%o\n", b"payments[3]@47\n"),
        ("%k=%s", b"k=v"),
        ("%T %D", b"1767225600250 2026-01-01T00:00:00.250Z"),
        ("%K/%S", b"1/1"),
        ("%h", b"a=1,b=NULL"),
        (r"100%%\t\x00\\", b"100%\t\x00\\"),
        ("no fields", b"no fields"),
        ("", b""),
        ("é%s", "év".encode()),
    ],
)
def test_fields_and_escapes(template: str, text: bytes) -> None:
    assert Template(template).render([Fake()]) == text


def test_null_is_empty_and_its_size_is_minus_one() -> None:
    assert Template("[%k][%s][%K][%S][%h]").render([Fake(None, None, None)]) == b"[][][-1][-1][]"


def test_records_follow_one_another() -> None:
    assert Template(r"%s\n").render([Fake(value_=b"a"), Fake(value_=b"b")]) == b"a\nb\n"
    assert Template(r"%s\n").render([]) == b""
    assert Template("%o,%s;").render([Fake(value_=b"a"), Fake(value_=b"b")]) == b"47,a;47,b;"


@pytest.mark.parametrize("template", ["%q", "%", "\\", r"\q", r"\xg0", "50% of"])
def test_what_means_nothing_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="is not valid in a template"):
        Template(template)


def test_bytes_pass_untouched_into_a_pipe_and_harmless_onto_a_terminal() -> None:
    wild = Fake(value_=b"\x1b[2Jr\xc3\xa9d\xff\x00\x9b")
    assert Template("%s").render([wild]) == wild.value_
    assert Template("%s", safe=True).render([wild]) == "\\x1b[2Jréd\\xff\\x00\\x9b".encode()


@given(st.binary())
def test_what_is_printable_holds_no_control_character(data: bytes) -> None:
    shown = printable(data).decode()
    assert not [
        letter for letter in shown if (ord(letter) < 32 and letter not in "\t\n") or 127 <= ord(letter) < 160
    ]


def test_a_record_as_json_names_every_field() -> None:
    assert json.loads(Template("%J").render([Fake()])) == {
        "topic": "payments",
        "partition": 3,
        "offset": 47,
        "timestamp": 1_767_225_600_250,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "v",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


def test_a_record_without_a_time_has_none_in_json() -> None:
    assert "timestamp" not in as_json(Fake(timestamp_=(0, -1)))


maybe_bytes = st.none() | st.binary()


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(), maybe_bytes)), st.integers(0, 2**53))
def test_what_is_written_as_json_is_read_back_as_the_same_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = Template("%J").render([Fake(key, value, headers, (1, timestamp))])
    assert b"\n" not in line
    record = json_parser()(line, 1)
    assert (record.key, record.value, record.headers or [], record.timestamp, record.partition) == (
        *(key, value, headers, timestamp),
        3,
    )


def test_times_beyond_the_calendar_stay_numbers() -> None:
    assert utc(-1) == ""
    assert utc(0) == "1970-01-01T00:00:00.000Z"
    assert utc(2**62) == str(2**62)
