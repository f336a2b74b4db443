"""Requests that are not what they say. (That good ones are read as kio reads them is in test_codec.)"""

from __future__ import annotations

import random

import pytest
from kio.index import load_request_schema

from millstream.core.errors import ProtocolError
from millstream.wire.codec.schema_codec import request_reader, request_writer
from tests.unit.wire.codec.test_schema_codec import ALL, Filler


def example(api_key: int, version: int, seed: int) -> bytes:
    _, values = Filler(seed, nulls=False).fill(load_request_schema(api_key, version))
    out = bytearray()
    request_writer(api_key, version)(out, values)
    return bytes(out)


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_a_request_cut_anywhere_is_refused(api_key: int, version: int) -> None:
    data = example(api_key, version, seed=5)
    read = request_reader(api_key, version)
    for end in range(0, len(data), max(1, len(data) // 40)):
        with pytest.raises(ProtocolError):
            read(data[:end], 0)


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_damaged_and_random_requests_are_read_or_refused_and_nothing_else(api_key: int, version: int) -> None:
    chance = random.Random(f"{api_key} {version}")
    read = request_reader(api_key, version)
    for number in range(40):
        data = bytearray(example(api_key, version, seed=number % 5) if number % 2 else chance.randbytes(60))
        for _ in range(chance.randint(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        try:
            _, size = read(bytes(data), 0)
        except ProtocolError:
            continue
        assert size <= len(data)


def test_the_length_of_an_array_is_not_believed() -> None:
    for data in (b"\x7f\xff\xff\xff" + bytes(30), b"\xff\xff\xff\xff\x07" + bytes(30)):
        with pytest.raises(ProtocolError, match="does not fit"):
            request_reader(3, 1 if data[0] == 0x7F else 12)(data, 0)


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"\0\0\0\1\xff\xff\0", "name is null"), (b"\0\0\0\1\0\2\xff\xfe\0", "name is not UTF-8")],
)
def test_a_refusal_says_which_field_is_wrong(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        request_reader(3, 4)(data, 0)
