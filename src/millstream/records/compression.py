"""Compresses and decompresses a batch's records with the codecs of Kafka's clients.

    0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd

Decompression is bounded, because a batch of a few kilobytes may claim to hold gigabytes. The largest
possible output of a compressed block is computed from its headers before anything is allocated. Whatever
the headers say, the output never grows past the bound.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct, error
from typing import Literal

import cramjam

from millstream.core.errors import BatchTooLarge, ConfigError, CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# The largest decompressed size of a batch. Kafka's clients have no such bound; its batches are a few
# megabytes at most.
MAX_DECOMPRESSED = 256 * 1024 * 1024

Data = bytes | bytearray | memoryview

_UINT32_BE = Struct(">I")
_UINT32_LE = Struct("<I")


def codec_named(name: str) -> int:
    """The number of a codec from its name in ``compression.type``."""
    try:
        return NAMES.index(name.strip().lower())
    except ValueError:
        raise ConfigError(f"unknown codec {name!r}; known are {', '.join(NAMES)}") from None


def compress(codec: int, data: Data, level: int | None = None) -> Data:
    """Compress ``data`` in the framing that every Kafka client reads. ``level`` is Kafka's
    ``compression.*.level``; None is the codec's default."""
    return data if codec == NONE else _COMPRESS[codec](data, level)


def decompress(codec: int, data: Data, max_size: int = MAX_DECOMPRESSED) -> Data:
    """Decompress ``data``. Raises CorruptBatch if it is damaged or of an unknown codec, and BatchTooLarge
    if the result would be larger than ``max_size``."""
    if codec == NONE:
        return data
    if codec > ZSTD:
        raise CorruptBatch(f"compressed with an unknown codec ({codec})")
    try:
        return _DECOMPRESS[codec](data, max_size)
    except (cramjam.DecompressionError, zlib.error, error) as problem:
        raise CorruptBatch(f"{NAMES[codec]} can't be decompressed: {problem}") from None


def _too_large(codec: int, max_size: int) -> BatchTooLarge:
    return BatchTooLarge(f"{NAMES[codec]} decompresses to more than {max_size} bytes")


def _into(codec: int, read: Callable[[Data, bytearray], int], data: Data, bound: int, max_size: int) -> Data:
    """Decompress into a buffer of fixed size: the codec's bound on the size, or the caller's if that is
    smaller."""
    out = bytearray(min(bound, max_size))
    try:
        size = read(data, out)
    except cramjam.DecompressionError:
        if bound > max_size:
            raise _too_large(codec, max_size) from None
        raise
    return memoryview(out)[:size]


# gzip ---------------------------------------------------------------------------------------------------


def _gzip(data: Data, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=31)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Data, max_size: int) -> bytes:
    parts: list[bytes] = []
    left = max_size
    while data:  # gzip data may consist of several members
        stream = zlib.decompressobj(wbits=31)
        part = stream.decompress(data, left + 1)
        left -= len(part)
        if left < 0:
            raise _too_large(GZIP, max_size)
        if not stream.eof:
            raise CorruptBatch("gzip can't be decompressed: it is cut off")
        parts.append(part)
        data = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy -------------------------------------------------------------------------------------------------
# The Java client writes snappy-java's stream: a magic, two versions, then blocks with a length before
# each. librdkafka writes one bare snappy block. The magic distinguishes them.

_XERIAL = b"\x82SNAPPY\x00" + _UINT32_BE.pack(1) + _UINT32_BE.pack(1)
_XERIAL_MAGIC = _XERIAL[:8]
_XERIAL_BLOCK = 32 * 1024


def _snappy(data: Data, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_UINT32_BE.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Data, max_size: int) -> Data:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_size, max_size)
    out = bytearray()
    position = len(_XERIAL)
    while position < len(view):
        (size,) = _UINT32_BE.unpack_from(view, position)
        position += 4
        if position + size > len(view):
            raise CorruptBatch("snappy can't be decompressed: a block is cut off")
        out += _unsnappy_block(view[position : position + size], max_size - len(out), max_size)
        position += size
    return out


def _unsnappy_block(block: Data, left: int, max_size: int) -> Data:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > left:
        raise _too_large(SNAPPY, max_size)
    # Two bytes of snappy give at most 64. A short block that claims more is lying; don't allocate for it.
    if size > len(block) * 64:
        raise CorruptBatch(f"snappy can't be decompressed: {len(block)} bytes claim to be {size}")
    out = bytearray(size)
    cramjam.snappy.decompress_raw_into(block, out)
    return out


# lz4 ----------------------------------------------------------------------------------------------------
# A frame of blocks, each preceded by its length. The Java client refuses blocks that refer to earlier
# ones, as cramjam's own frames do. So frames are assembled here from independent blocks of 64 KiB.

_LZ4_MAGIC = 0x184D2204
_LZ4_HEAD = _UINT32_LE.pack(_LZ4_MAGIC) + bytes((0x60, 0x40, 0x82))  # v1, independent, 64 KiB, checksum
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 0x8000_0000  # this block is not compressed
_LZ4_END = bytes(4)
LZ4_FAST = 9  # Kafka's default level, for which Kafka also uses the fast compressor


def _lz4(data: Data, level: int | None) -> bytes:
    view = memoryview(data)
    high = level is not None and level != LZ4_FAST
    mode: Literal["high_compression"] | None = "high_compression" if high else None
    effort = level if high else None
    parts = [_LZ4_HEAD]
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False, mode=mode, compression=effort))
        if len(block) < len(plain):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _unlz4(data: Data, max_size: int) -> Data:
    return _into(LZ4, cramjam.lz4.decompress_into, data, _lz4_bound(memoryview(data)), max_size)


def _lz4_bound(data: memoryview) -> int:
    """The most that a frame can decompress to. Each block gives its declared maximum at most."""
    (magic,) = _UINT32_LE.unpack_from(data)
    if magic != _LZ4_MAGIC or len(data) < 7:
        raise CorruptBatch("lz4 can't be decompressed: not a frame")
    flags, sizes = data[4], data[5]
    block_size: int = 1 << (8 + 2 * ((sizes >> 4) & 7))
    checksum = 4 if flags & 0x10 else 0
    position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    bound = 0
    while True:
        (size,) = _UINT32_LE.unpack_from(data, position)
        if size == 0:
            return bound
        stored = size & ~_LZ4_STORED
        # A byte of lz4 gives at most 255.
        bound += stored if size & _LZ4_STORED else min(block_size, stored * 255)
        position += 4 + stored + checksum


# zstd ---------------------------------------------------------------------------------------------------

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_BLOCK = 128 * 1024
_ZSTD_RAW, _ZSTD_RUN, _ZSTD_COMPRESSED = range(3)


def _zstd(data: Data, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, 3 if level is None else level))


def _unzstd(data: Data, max_size: int) -> Data:
    return _into(ZSTD, cramjam.zstd.decompress_into, data, _zstd_bound(memoryview(data)), max_size)


def _zstd_bound(data: memoryview) -> int:
    """The most that the frames can decompress to: each block states its size, or has at most 128 KiB."""
    position = bound = 0
    while position < len(data):
        (magic,) = _UINT32_LE.unpack_from(data, position)
        if magic & 0xFFFF_FFF0 == _ZSTD_SKIPPABLE:
            position += 8 + _UINT32_LE.unpack_from(data, position + 4)[0]
            continue
        if magic != _ZSTD_MAGIC or position + 5 > len(data):
            raise CorruptBatch("zstd can't be decompressed: not a frame")
        descriptor = data[position + 4]
        single_segment = bool(descriptor & 0x20)
        size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
        position += 5 + (0 if single_segment else 1) + dictionary_bytes
        stated = None
        if size_bytes:
            stated = int.from_bytes(data[position : position + size_bytes], "little")
            stated += 256 if size_bytes == 2 else 0
            position += size_bytes
        frame_bound, position = _zstd_blocks_bound(data, position)
        bound += frame_bound if stated is None else min(stated, frame_bound)
        position += 4 if descriptor & 0x04 else 0
    return bound


def _zstd_blocks_bound(data: memoryview, position: int) -> tuple[int, int]:
    bound = 0
    last = False
    while not last:
        if position + 3 > len(data):
            raise CorruptBatch("zstd can't be decompressed: it is cut off")
        header = int.from_bytes(data[position : position + 3], "little")
        last = bool(header & 1)
        kind, size = (header >> 1) & 3, header >> 3
        position += 3 + (1 if kind == _ZSTD_RUN else size)
        bound += _ZSTD_BLOCK if kind == _ZSTD_COMPRESSED else size
    return bound, position


_COMPRESS: dict[int, Callable[[Data, int | None], Data]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESS: dict[int, Callable[[Data, int], Data]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
