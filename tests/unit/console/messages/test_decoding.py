"""Bytes as people read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.console.messages.decoding import FORMATS, LONG, Decoding, Format, shown
from millstream.core.errors import UndecodableRecord


class Schemas:
    """A registry's decoder, as far as it matters here: schema 7 is of a text, there is no other."""

    def decode(self, data: bytes | None, type: str | None = None) -> Any:
        assert data is not None
        if data[:5] != b"\0\0\0\0\7":
            raise UndecodableRecord("the registry has no schema 9")
        if type not in (None, "AVRO"):
            raise UndecodableRecord(f"schema 7 is of type AVRO, not {type}")
        return {"name": data[5:].decode()}


@pytest.mark.parametrize(
    ("data", "taken_for"),
    [
        (None, "null"),
        (b"", "text"),
        (b'{"a": 1}', "json"),
        (b" [1, 2]", "json"),
        (b"{broken", "text"),
        (b"12.5", "text"),
        ("grün\n".encode(), "text"),
        (b"\x00\x01\x02", "hex"),
        (b"\xff\xfe", "hex"),
        (b"\0\0\0\0\7Ann", "schema"),
        (b"\0\0\0\0\x09Ann", "hex"),  # of a schema that nobody knows
        (b"a" + "é".encode() * 4000, "text"),  # also where what is looked at ends within a letter
    ],
)
def test_auto_looks(data: bytes | None, taken_for: str) -> None:
    assert Decoding("auto", Schemas()).meant(data).format == taken_for


def test_json_is_pretty_where_there_is_room() -> None:
    meant = Decoding().meant(b'{"a":[1,2],"b":"\xc3\xa9"}')
    assert shown(meant).text == '{"a":[1,2],"b":"é"}'
    assert shown(meant, 1000, pretty=True).text == '{\n  "a": [\n    1,\n    2\n  ],\n  "b": "é"\n}'


def test_hex_shows_places_and_letters() -> None:
    assert shown(Decoding("hex").meant(b"hi\n")).text == "68 69 0a"
    first, second = shown(Decoding("hex").meant(bytes(range(60, 80))), 1000, pretty=True).text.splitlines()
    assert first == "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK"
    assert second.startswith("00000010  4c 4d 4e 4f")


def test_by_schema_and_why_not() -> None:
    found = shown(Decoding("avro", Schemas()).meant(b"\0\0\0\0\7Ann"))
    assert (found.format, found.text, found.schema_id) == ("avro", '{"name": "Ann"}', 7)
    assert "not PROTOBUF" in shown(Decoding("protobuf", Schemas()).meant(b"\0\0\0\0\7Ann")).note
    assert "--registry" in shown(Decoding("avro").meant(b"\0\0\0\0\7Ann")).note
    assert shown(Decoding("json").meant(b"hello")).note == "not JSON"


def test_what_is_long_is_cut_and_says_how_long_it_is() -> None:
    for format_ in ("text", "hex"):
        found = shown(Decoding(format_).meant(b"x" * 10_000), 100)
        assert (len(found.text), found.cut, found.bytes) == (100, True, 10_000)
    assert not shown(Decoding("text").meant(b"x" * 100), 100).cut


@given(st.binary(max_size=200), st.sampled_from(FORMATS), st.integers(1, 500), st.booleans())
def test_whatever_a_record_holds_is_shown(data: bytes, format_: Format, most: int, pretty: bool) -> None:
    found = shown(Decoding(format_, Schemas()).meant(data), most, pretty=pretty)
    assert len(found.text) <= most
    assert found.bytes == len(data)


@pytest.mark.parametrize(
    "text",
    [
        r'{"u": "\ud800"}',
        '{"n": 1e400, "m": 1.10, "big": 123456789012345678901234567890}',
        '{"a": 1, "a": 2}',
    ],
)
def test_json_is_shown_as_it_was_written(text: str) -> None:
    meant = Decoding().meant(text.encode())
    assert shown(meant).text == text
    pretty = shown(meant, LONG, pretty=True).text
    assert "".join(pretty.split()) == "".join(text.split())
    assert pretty.startswith("{\n  ")
    pretty.encode()  # or the page would be an error


@pytest.mark.parametrize(
    "value", [{}, [], {"a": {}, "b": [1, [2, 'x, {y}: \\" z']], "c": None}, [{"k": True}, -1.5e3], "ü", 7]
)
def test_indented_json_is_laid_out_as_usual(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    meant = Decoding("json").meant(text.encode())
    assert shown(meant, LONG, pretty=True).text == json.dumps(value, ensure_ascii=False, indent=2)


def test_half_a_letter_in_bytes_is_shown_too() -> None:
    meant = Decoding().meant(b'{"u": "\xed\xa0\x80"}')
    assert shown(meant).text.encode()
