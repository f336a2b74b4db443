"""Frames, variable-length numbers and the table of request kinds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import ProtocolError
from millstream.wire.api_keys import APIS, NEVER, is_flexible, name_of
from millstream.wire.frame import frame, read_client_id, read_unsigned_varint, skip_tags, unsigned_varint


@given(st.integers(0, 2**31 - 1))
def test_a_variable_length_number_is_read_as_it_was_written(value: int) -> None:
    from millstream.wire.codec.schema_codec import write_unsigned_varint

    written = unsigned_varint(value)
    out = bytearray()
    write_unsigned_varint(out, value)
    assert bytes(out) == written
    assert read_unsigned_varint(b"x" + written + b"x", 1) == (value, 1 + len(written))


def test_a_number_that_does_not_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="five bytes"):
        read_unsigned_varint(b"\xff" * 9, 0)


def test_unknown_tags_are_skipped_and_absurd_ones_refused() -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\x81\x01\x00"
    assert skip_tags(tags + b"rest", 0) == len(tags)
    with pytest.raises(ProtocolError, match="tagged fields"):
        skip_tags(unsigned_varint(100_000), 0)


@pytest.mark.parametrize(("flexible", "tail"), [(False, b""), (True, b"\0")])
@pytest.mark.parametrize(("client_id", "encoded"), [("", b"\xff\xff"), ("me", b"\0\2me")])
def test_the_client_id_comes_before_the_body(
    flexible: bool, tail: bytes, client_id: str, encoded: bytes
) -> None:
    data = bytes(12) + encoded + tail + b"body"
    assert read_client_id(data, flexible) == (client_id, len(data) - 4)


def test_a_frame_counts_what_follows_its_size() -> None:
    assert frame(7, b"abc", tags=False) == b"\0\0\0\x07\0\0\0\x07abc"
    assert frame(7, b"abc", tags=True) == b"\0\0\0\x08\0\0\0\x07\0abc"


def test_the_table_of_request_kinds_agrees_with_the_schemas() -> None:
    from kio.schema.index import api_key_map, schema_name_map

    from millstream.wire.codec import schema_codec as codec

    assert set(APIS) == set(api_key_map)
    for key, name in api_key_map.items():
        assert name_of(key).lower() == name.replace("_", "")
        for version in schema_name_map[name]:
            assert is_flexible(key, version) == codec.is_flexible(key, version), (key, version)
    assert APIS[17].flexible_from == NEVER


def test_a_request_kind_without_a_name_is_named_by_its_number() -> None:
    assert name_of(999) == "api key 999"
