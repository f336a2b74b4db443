from __future__ import annotations

import struct
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import ConfigError, CorruptBatch
from millstream.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD, codec_named, compress, decompress

CODECS = range(len(NAMES))
PACKED = (GZIP, SNAPPY, LZ4, ZSTD)
LIMIT = 1 << 20


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=2000), times=st.integers(1, 100))
@settings(max_examples=25)
def test_what_is_compressed_comes_back(codec: int, data: bytes, times: int) -> None:
    plain = data * times
    assert bytes(decompress(codec, compress(codec, plain))) == plain


@pytest.mark.parametrize("codec", PACKED)
def test_data_of_many_blocks_comes_back(codec: int) -> None:
    plain = bytes(range(256)) * 2000 + bytes(300_000)
    assert bytes(decompress(codec, compress(codec, plain))) == plain


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_an_error_and_not_memory(codec: int) -> None:
    bomb = compress(codec, bytes(64 * LIMIT))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match=f"more than {LIMIT} bytes"):
            decompress(codec, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 8 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", PACKED)
def test_exactly_the_limit_is_no_bomb(codec: int) -> None:
    assert len(decompress(codec, compress(codec, bytes(LIMIT)), LIMIT)) == LIMIT


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.data())
@settings(max_examples=60)
def test_damaged_data_is_refused_or_some_other_data_never_a_crash(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"the quick brown fox " * 40))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = packed[: data.draw(st.integers(0, len(packed)))]
    try:
        assert len(decompress(codec, bytes(cut), LIMIT)) <= LIMIT
    except CorruptBatch as problem:
        assert NAMES[codec] in problem.reason  # noqa: PT017 - either outcome is right


def test_a_bare_snappy_block_is_read_as_librdkafka_writes_it() -> None:
    plain = b"one block without a frame " * 50
    assert bytes(decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(plain)))) == plain


def test_snappy_is_written_in_the_java_clients_frame() -> None:
    packed = bytes(compress(SNAPPY, bytes(100_000)))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (size,) = struct.unpack_from(">I", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + size]) == 32 * 1024


def test_lz4_blocks_are_independent_because_java_refuses_others() -> None:
    packed = bytes(compress(LZ4, b"abc" * 100_000))
    assert packed[4] & 0x20


def test_lz4_frames_of_dependent_blocks_are_read() -> None:
    plain = bytes(range(256)) * 2000
    packed = bytes(cramjam.lz4.compress(plain))
    assert not packed[4] & 0x20
    assert bytes(decompress(LZ4, packed)) == plain


def test_gzip_of_several_members_is_read_whole() -> None:
    assert decompress(GZIP, bytes(compress(GZIP, b"one ")) + bytes(compress(GZIP, b"two"))) == b"one two"


def test_gzip_that_lacks_its_end_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="cut off"):
        decompress(GZIP, bytes(compress(GZIP, b"x" * 1000))[:-9])


def test_gzip_is_not_taken_for_zlib() -> None:
    with pytest.raises(CorruptBatch):
        decompress(GZIP, zlib.compress(b"x"))


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(CorruptBatch, match=r"unknown codec \(7\)"):
        decompress(7, b"x")


def test_a_codec_is_found_by_name_and_others_are_listed() -> None:
    assert codec_named("ZSTD") == ZSTD
    with pytest.raises(ConfigError, match="'brotli'; known are none, gzip, snappy, lz4, zstd"):
        codec_named("brotli")
