# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads the numbers and fields of a record, for the compiled modules.

Nothing here trusts a byte: every read is preceded by a check against the end of the record.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

# Why a record is invalid.
cdef enum Fault:
    FINE, NUMBER, RECORD, FIELD, HEADERS, HEADER_KEY, LEFT_OVER, OFFSET, TIME
    # Checked only by an append: see records.check.
    FEWER, MORE, NO_KEY, OUT_OF_TIME, MAX_TIME


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end
    Fault fault


cdef inline int64_t long_number(Cursor *c, int bits) noexcept nogil:
    """A zigzag varint of at most 32 or 64 bits."""
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while c.at < c.end and shift <= bits:
        byte = c.at[0]
        c.at += 1
        if shift == 63 and byte > 1:
            break
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if bits == 32 and value >> 32:
                break
            return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
        shift += 7
    c.fault = NUMBER
    return 0


cdef inline int64_t number(Cursor *c, int bits) noexcept nogil:
    """Like ``long_number``, with a fast path for numbers of one or two bytes, which most are."""
    cdef uint32_t first, second
    if c.end - c.at >= 2:
        first = c.at[0]
        if first < 0x80:
            c.at += 1
            return <int64_t>(first >> 1) ^ -<int64_t>(first & 1)
        second = c.at[1]
        if second < 0x80:
            c.at += 2
            first = (first & 0x7F) | second << 7
            return <int64_t>(first >> 1) ^ -<int64_t>(first & 1)
    return long_number(c, bits)


cdef inline int64_t field(Cursor *c) noexcept nogil:
    """The length of a key or value, -1 for null. Leaves the cursor at its first byte."""
    cdef int64_t length = number(c, 32)
    if c.fault == FINE and (length < -1 or length > c.end - c.at):
        c.fault = FIELD
    return length


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *write_number(uint8_t *out, int64_t number) noexcept nogil:
    cdef uint64_t value = zigzag(number)
    while value > 0x7F:
        out[0] = <uint8_t>(value & 0x7F) | 0x80
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1
