# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Keys and their newest offsets, compiled: see ``keys``, which says what each function does.

A key is identified by its 128-bit SipHash-2-4 under a secret that only this map has. Two keys with the
same hash do not occur, and nobody can construct them. A slot of the table has 24 bytes. Offsets are
stored plus one, so that zero marks a free slot. Nothing here trusts a byte of a batch, and the loops run
without the interpreter's lock.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

import os

from millstream.core.errors import CorruptBatch
from millstream.records.columns._columns import REASONS
from millstream.records._fields cimport (
    FINE, OFFSET, RECORD, TIME, Cursor, field, number, varint_size, write_number, zigzag,
)

SLOT_BYTES = 32  # of memory per key: a slot has 24, and three in four are used

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t offset


cdef struct Entry:
    # A record: its start, where the part after its timestamp begins, and its end.
    const uint8_t *start
    const uint8_t *rest
    const uint8_t *end
    const uint8_t *key
    int64_t time_delta
    int64_t offset_delta
    int64_t key_length
    int64_t value_length


cdef inline uint64_t rotated(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[0] = rotated(v[0], 32)
    v[2] += v[3]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[2] = rotated(v[2], 32)


cdef void siphash(const uint64_t *secret, const uint8_t *data, int64_t length, uint64_t *out) noexcept nogil:
    """SipHash-2-4 with 128 bits of output."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t left = length
    cdef int i
    v[0] = <uint64_t>0x736F6D6570736575 ^ secret[0]
    v[1] = <uint64_t>0x646F72616E646F6D ^ secret[1] ^ 0xEE
    v[2] = <uint64_t>0x6C7967656E657261 ^ secret[0]
    v[3] = <uint64_t>0x7465646279746573 ^ secret[1]
    while left >= 8:
        memcpy(&word, data, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        data += 8
        left -= 8
    word = <uint64_t>(length & 0xFF) << 56
    for i in range(<int>left):
        word |= <uint64_t>data[i] << (8 * i)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for i in range(4):
        sip_round(v)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        sip_round(v)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline bint next_record(Cursor *c, const uint8_t *stop, Entry *e, int64_t previous, int64_t last) noexcept nogil:
    """Read a record up to its value's length. Headers are not read: they are kept together with the
    record."""
    cdef int64_t length
    e.start = c.at
    c.end = stop
    length = number(c, 32)
    if c.fault != FINE or length <= 0 or length > stop - c.at:
        c.fault = c.fault or RECORD
        return False
    c.end = e.end = c.at + length
    c.at += 1  # attributes, unused
    e.time_delta = number(c, 64)
    if c.fault != FINE:
        return False
    e.rest = c.at
    e.offset_delta = number(c, 32)
    if c.fault == FINE and (e.offset_delta <= previous or e.offset_delta > last):
        c.fault = OFFSET
    if c.fault != FINE:
        return False
    e.key_length = field(c)
    if c.fault != FINE:
        return False
    e.key = c.at
    if e.key_length > 0:
        c.at += e.key_length
    e.value_length = field(c)
    c.at = e.end
    return c.fault == FINE


cdef class LatestOffsets:
    cdef Slot *table
    cdef uint64_t slots
    cdef uint64_t secret[2]
    cdef readonly int64_t count
    cdef readonly int64_t limit

    def __cinit__(self, int64_t keys):
        cdef const uint8_t[::1] secret = os.urandom(16)
        memcpy(&self.secret[0], &secret[0], 16)
        self.limit = max(keys, 1)
        self.slots = <uint64_t>(self.limit + self.limit // 3 + 1)  # at most three quarters full
        self.table = <Slot *>calloc(self.slots, sizeof(Slot))
        if self.table == NULL:
            raise MemoryError(f"no memory for {keys} keys")

    def __dealloc__(self):
        free(self.table)

    cdef inline Slot *slot_of(self, const uint8_t *key, int64_t length, uint64_t *hashed) noexcept nogil:
        """The key's slot, or the free slot where it would go."""
        cdef uint64_t at
        siphash(self.secret, key, length, hashed)
        at = hashed[0] % self.slots
        while self.table[at].offset != 0 and (
            self.table[at].low != hashed[0] or self.table[at].high != hashed[1]
        ):
            at += 1
            if at == self.slots:
                at = 0
        return &self.table[at]

    def note(self, const uint8_t[::1] body, int64_t count, int64_t base_offset, int64_t last_delta, int64_t start):
        cdef const uint8_t *stop
        cdef Cursor c
        cdef Entry e
        cdef Slot *slot
        cdef uint64_t hashed[2]
        cdef int64_t previous = -1
        if self.count + count > self.limit:
            return False
        if count == 0:
            return True
        c.at = &body[0]
        c.fault = FINE
        stop = c.at + body.shape[0]
        with nogil:
            while count > 0:
                count -= 1
                if not next_record(&c, stop, &e, previous, last_delta):
                    break
                previous = e.offset_delta
                if e.key_length < 0 or base_offset + previous < start:
                    continue
                slot = self.slot_of(e.key, e.key_length, hashed)
                if slot.offset == 0:
                    slot.low, slot.high = hashed[0], hashed[1]
                    self.count += 1
                if base_offset + previous + 1 > slot.offset:
                    slot.offset = base_offset + previous + 1
        if c.fault == FINE and c.at != stop:
            c.fault = RECORD
        if c.fault != FINE:
            raise CorruptBatch(REASONS[c.fault])
        return True

    def kept(self, const uint8_t[::1] body, int64_t count, int64_t base_offset, int64_t last_delta,
             int64_t base_timestamp, int64_t latest, bint tombstones, horizon, Py_ssize_t room):
        cdef const uint8_t *origin = &body[0] if body.shape[0] else NULL
        cdef const uint8_t *stop = origin + body.shape[0]
        cdef const uint8_t *run  # the first of the kept bytes that are not yet copied
        cdef Cursor c
        cdef Entry e
        cdef uint64_t hashed[2]
        cdef int64_t number_of = count, row, previous = -1, left = 0, deletions = 0, keyless = 0, size = 0
        cdef int64_t shift = 0, delta, newest = INT64_MIN
        cdef uint8_t *keep
        cdef uint8_t *out
        cdef uint8_t[::1] view
        cdef bint rebased = False, keeps
        keep = <uint8_t *>malloc(count + 1)
        if keep == NULL:
            raise MemoryError("no memory for a batch")
        try:
            c.at = origin
            c.fault = FINE
            with nogil:
                for row in range(number_of):
                    if not next_record(&c, stop, &e, previous, last_delta):
                        break
                    previous = e.offset_delta
                    if base_offset + previous > latest:
                        keeps = True
                    elif e.key_length < 0:
                        keeps = False
                        keyless += 1
                    else:
                        keeps = (
                            base_offset + previous + 1 >= self.slot_of(e.key, e.key_length, hashed).offset
                            and (e.value_length >= 0 or tombstones)
                        )
                    keep[row] = keeps
                    if keeps:
                        left += 1
                        size += e.end - e.start
                        deletions += e.value_length < 0
                        if e.time_delta > newest:
                            newest = e.time_delta
            if c.fault == FINE and c.at != stop:
                c.fault = RECORD
            if c.fault != FINE:
                raise CorruptBatch(REASONS[c.fault])
            if left and (newest > 0 and base_timestamp > INT64_MAX - newest):
                raise CorruptBatch(REASONS[TIME])
            newest += base_timestamp if left else 0
            if deletions and horizon is not None:
                rebased = True
                shift = base_timestamp - <int64_t>horizon
            if left == number_of and not rebased:
                return None, left, newest, rebased, keyless
            # A timestamp takes at most ten bytes, and a longer record may need one more byte for its length.
            result = bytearray(room + size + (left * 10 if rebased else 0))
            view = result
            out = &view[0] + room if left else NULL
            c.at = origin
            previous = -1
            with nogil:
                run = NULL
                for row in range(number_of):
                    next_record(&c, stop, &e, previous, last_delta)
                    previous = e.offset_delta
                    if keep[row] and rebased:
                        delta = e.time_delta + shift
                        out = write_number(out, 1 + varint_size(zigzag(delta)) + (e.end - e.rest))
                        out[0] = 0  # attributes
                        out = write_number(out + 1, delta)
                        memcpy(out, e.rest, e.end - e.rest)
                        out += e.end - e.rest
                    elif keep[row]:
                        if run == NULL:
                            run = e.start
                    elif run != NULL:
                        memcpy(out, run, e.start - run)
                        out += e.start - run
                        run = NULL
                if run != NULL:
                    memcpy(out, run, stop - run)
                    out += stop - run
        finally:
            free(keep)
        size = (out - &view[0]) if left else room
        del view
        del result[size:]
        return result, left, newest, rebased, keyless
