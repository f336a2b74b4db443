from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.text.lines import Outgoing, blocks_of_lines, json_parser, line_parser, whole
from millstream.core.errors import InputError


class Trickle:
    """A stream that gives a few bytes at a time, as a pipe may."""

    def __init__(self, data: bytes, step: int) -> None:
        self._rest = io.BytesIO(data)
        self._step = step

    def read1(self, size: int) -> bytes:
        return self._rest.read(min(size, self._step))


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_are_the_same_however_they_arrive(lines: list[bytes], step: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert [line for block in blocks_of_lines(Trickle(data, step)) for line in block] == lines


def test_a_last_line_needs_no_line_feed() -> None:
    assert list(blocks_of_lines(io.BytesIO(b"a\nb"))) == [[b"a"], [b"b"]]
    assert list(blocks_of_lines(io.BytesIO(b""))) == []


def test_an_endless_line_ends_with_an_error_that_says_where() -> None:
    blocks = blocks_of_lines(Trickle(b"ok\n" + b"x" * 100, 10), longest=50)
    assert next(blocks) == [b"ok"]
    with pytest.raises(InputError, match="line 2: longer than 50 bytes"):
        list(blocks)
    with pytest.raises(InputError, match="longer"):
        whole(io.BytesIO(b"x" * 100), longest=50)


def test_a_line_is_a_value() -> None:
    parse = line_parser(key=b"k", headers=[("h", b"1")], partition=2, timestamp=5)
    assert parse(b"v", 1) == Outgoing(b"v", b"k", [("h", b"1")], 2, 5)


def test_a_separator_parts_key_and_value_once() -> None:
    parse = line_parser(key_separator=b":")
    assert parse(b"k:a:b", 1) == Outgoing(b"a:b", b"k")
    assert parse(b"k:", 1) == Outgoing(b"", b"k")
    with pytest.raises(InputError, match="line 7: no ':' between a key and a value"):
        parse(b"kv", 7)


def test_an_empty_value_is_a_tombstone_only_if_asked_for() -> None:
    assert line_parser()(b"", 1).value == b""
    assert line_parser(tombstones=True)(b"", 1).value is None


def test_a_json_record_gives_what_it_has_and_leaves_the_rest_to_the_options() -> None:
    parse = json_parser(key=b"fixed", headers=[("all", b"1")], partition=4, timestamp=9)
    assert parse(b'{"value": "v"}', 1) == Outgoing(b"v", b"fixed", [("all", b"1")], 4, 9)
    assert parse(
        b'{"key": "k", "value": {"n": [1, "\xc3\xa9"]}, "headers": {"a": "b", "n": null}, "partition": 0, '
        b'"timestamp": "2026-01-01"}',
        1,
    ) == Outgoing(
        '{"n":[1,"é"]}'.encode(),
        b"k",
        [("all", b"1"), ("a", b"b"), ("n", None)],
        0,
        1_767_225_600_000,
    )
    assert parse(b'{"key": 5, "value": null}', 1)[:2] == (None, b"5")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "is an object"),
        (b'{"card": 1}', "no field 'card'.*--format lines"),
        (b'{"value_base64": "!"}', "not base64"),
        (b'{"headers": "x"}', "headers are"),
        (b'{"headers": [["a", "b"]]}', "headers are"),
        (b'{"partition": "one"}', "partition"),
        (b'{"partition": true}', "partition"),
        (b'{"timestamp": "soon"}', "timestamp"),
        (b'{"timestamp": -1}', "timestamp"),
    ],
)
def test_what_is_not_a_json_record_is_refused_with_its_line(line: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=f"line 12: .*{reason}"):
        json_parser()(line, 12)
