# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records to columns and back, compiled: the inner loops of ``compiled``.

Nothing here trusts a fetched byte: every read is preceded by a check against the end of the record, and
every write goes to a buffer that the caller sized for the worst case.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from millstream.core.errors import CorruptBatch
from millstream.records._fields cimport (
    FIELD, FINE, HEADER_KEY, HEADERS, LEFT_OVER, NUMBER, OFFSET, RECORD, TIME,
    Cursor, field, number, varint_size, write_number, zigzag,
)

cdef enum:
    SPAN = 8  # numbers per batch: see codec_interface.SPAN

cdef int64_t MAX_MS = INT64_MAX // 1000
cdef int64_t MIN_MS = -(INT64_MAX // 1000)

REASONS = {
    NUMBER: "a number that does not end, or is too large",
    RECORD: "a record that is longer than what is left",
    FIELD: "a field that is longer than its record",
    HEADERS: "more headers than the record can hold",
    HEADER_KEY: "a header without a key",
    LEFT_OVER: "bytes left over in a record",
    OFFSET: "offsets that do not grow, or pass the batch's last",
    TIME: "a timestamp beyond 64 bits",
}


cdef struct Out:
    # A binary column being written. offsets has one entry more than rows; valid is a zeroed bitmap.
    int32_t *offsets
    uint8_t *valid
    uint8_t *data
    int64_t size
    int64_t nulls


cdef inline void put(Out *out, int64_t row, const uint8_t *data, int64_t length) noexcept nogil:
    if length >= 0:
        memcpy(out.data + out.size, data, length)
        out.size += length
        out.valid[row >> 3] |= 1 << (row & 7)
    else:
        out.nulls += 1
    out.offsets[row + 1] = <int32_t>out.size


cdef _bytes(buffer):
    """Any buffer as unsigned bytes; Arrow declares its buffers as signed."""
    return memoryview(buffer).cast("B")


cdef Out binary_out(buffers):
    cdef Out out
    cdef int32_t[::1] offsets
    cdef uint8_t[::1] valid, data
    out.offsets = NULL
    out.size = out.nulls = 0
    if buffers is not None:
        offsets, valid, data = _bytes(buffers[0]).cast("i"), _bytes(buffers[1]), _bytes(buffers[2])
        out.offsets, out.valid, out.data = &offsets[0], &valid[0], &data[0]
        out.offsets[0] = 0
    return out


def fill(const uint8_t[::1] buffer, const int64_t[::1] spans, int64_t first, int64_t end,
         key, value, offsets, timestamps, types, header_at):
    cdef Out keys = binary_out(key)
    cdef Out values = binary_out(value)
    cdef bint want_key = key is not None, want_value = value is not None, want_headers = header_at is not None
    cdef int64_t[::1] offset_out = _bytes(offsets).cast("q")
    cdef int64_t[::1] timestamp_out = _bytes(timestamps).cast("q")
    cdef int32_t[::1] type_out = _bytes(types).cast("i")
    cdef int64_t[::1] header_out
    if want_headers:
        header_out = _bytes(header_at).cast("q")
    cdef const uint8_t *origin = &buffer[0] if buffer.shape[0] else NULL
    cdef const uint8_t *stop
    cdef const uint8_t *headers_start
    cdef const uint8_t *key_data
    cdef const uint8_t *value_data
    cdef Cursor c
    cdef Py_ssize_t span, at
    cdef int64_t row = 0, header_rows = 0, header_count = 0, header_key_bytes = 0, header_value_bytes = 0
    cdef int64_t base_offset, last_delta, base_timestamp, append_time, left, length, delta, previous
    cdef int64_t timestamp, key_length, value_length, headers, h, key_bytes, value_bytes
    cdef int32_t time_type

    for span in range(spans.shape[0] // SPAN):
        at = span * SPAN
        c.at = origin + spans[at]
        stop = origin + spans[at + 1]
        base_offset, last_delta, base_timestamp = spans[at + 2], spans[at + 3], spans[at + 4]
        append_time, left = spans[at + 5], spans[at + 6]
        time_type = 0 if append_time == INT64_MIN else 1
        previous = -1
        c.fault = FINE
        while left > 0:
            left -= 1
            c.end = stop
            length = number(&c, 32)
            if c.fault != FINE or length <= 0 or length > stop - c.at:
                c.fault = c.fault or RECORD
                break
            c.end = c.at + length
            c.at += 1  # attributes, unused
            delta = number(&c, 64)
            if c.fault != FINE:
                break
            if (delta > 0 and base_timestamp > INT64_MAX - delta) or (delta < 0 and base_timestamp < INT64_MIN - delta):
                c.fault = TIME
                break
            timestamp = base_timestamp + delta if time_type == 0 else append_time
            delta = number(&c, 32)
            if c.fault != FINE:
                break
            if delta <= previous or delta > last_delta:
                c.fault = OFFSET
                break
            previous = delta
            key_length = field(&c)
            if c.fault != FINE:
                break
            key_data = c.at
            if key_length > 0:
                c.at += key_length
            value_length = field(&c)
            if c.fault != FINE:
                break
            value_data = c.at
            if value_length > 0:
                c.at += value_length
            headers_start = c.at
            headers = number(&c, 32)
            if c.fault != FINE:
                break
            if headers < 0 or headers > c.end - c.at:
                c.fault = HEADERS
                break
            key_bytes = value_bytes = 0
            for h in range(headers):
                length = field(&c)
                if c.fault == FINE and length < 0:
                    c.fault = HEADER_KEY
                if c.fault != FINE:
                    break
                c.at += length
                key_bytes += length
                length = field(&c)
                if c.fault != FINE:
                    break
                if length > 0:
                    c.at += length
                    value_bytes += length
            if c.fault != FINE:
                break
            if c.at != c.end:
                c.fault = LEFT_OVER
                break
            delta += base_offset
            if delta < first or delta >= end:
                continue
            if want_key:
                put(&keys, row, key_data, key_length)
            if want_value:
                put(&values, row, value_data, value_length)
            offset_out[row] = delta
            timestamp_out[row] = 1000 * (MIN_MS if timestamp < MIN_MS else MAX_MS if timestamp > MAX_MS else timestamp)
            type_out[row] = time_type
            if want_headers:
                header_out[row] = headers_start - origin
                if headers:
                    header_rows += 1
                    header_count += headers
                    header_key_bytes += key_bytes
                    header_value_bytes += value_bytes
            row += 1
        if c.fault == FINE and c.at != stop:
            raise CorruptBatch(f"{stop - c.at} bytes after the last record", position=spans[at + 7])
        if c.fault != FINE:
            raise CorruptBatch(REASONS[c.fault], position=spans[at + 7])
    return (row, keys.size, keys.nulls, values.size, values.nulls,
            header_rows, header_count, header_key_bytes, header_value_bytes)


def fill_headers(const uint8_t[::1] buffer, header_at, int64_t rows, lists, list_valid, key, value):
    cdef Out keys = binary_out(key)
    cdef Out values = binary_out(value)
    cdef const int64_t[::1] positions = _bytes(header_at).cast("q")
    cdef int32_t[::1] list_out = _bytes(lists).cast("i")
    cdef uint8_t[::1] valid = _bytes(list_valid)
    cdef Cursor c
    cdef int64_t row, item = 0, headers, length
    c.fault = FINE
    c.end = &buffer[0] + buffer.shape[0]
    list_out[0] = 0
    for row in range(rows):
        c.at = &buffer[0] + positions[row]
        headers = number(&c, 32)
        if headers:
            valid[row >> 3] |= 1 << (row & 7)
        while headers > 0:
            headers -= 1
            length = field(&c)
            put(&keys, item, c.at, length)
            c.at += length
            length = field(&c)
            put(&values, item, c.at, length)
            if length > 0:
                c.at += length
            item += 1
        list_out[row + 1] = <int32_t>item
    return values.nulls


# Columns to records -------------------------------------------------------------------------------------

cdef class Binary:
    """A binary or string column of Arrow, accessed through its buffers."""
    cdef const int32_t[::1] offsets
    cdef const uint8_t[::1] data
    cdef const uint8_t[::1] valid
    cdef bint all_valid
    cdef bint empty
    cdef Py_ssize_t offset
    cdef readonly Py_ssize_t rows

    def __init__(self, column):
        valid, offsets, data = column.buffers()
        self.offset = column.offset
        self.rows = len(column)
        self.all_valid = valid is None
        if valid is not None:
            self.valid = _bytes(valid)
        if self.rows:
            self.offsets = _bytes(offsets)[: 4 * (self.offset + self.rows + 1)].cast("i")
        self.empty = data is None or len(data) == 0
        if not self.empty:
            self.data = _bytes(data)

    cdef inline int64_t length(self, int64_t row) noexcept:
        """The length of a row's value; -1 for null."""
        row += self.offset
        if not self.all_valid and not (self.valid[row >> 3] >> (row & 7)) & 1:
            return -1
        return self.offsets[row + 1] - self.offsets[row]

    cdef inline const uint8_t *bytes_at(self, int64_t row) noexcept:
        return NULL if self.empty else &self.data[self.offsets[row + self.offset]]


cdef inline int64_t field_size(int64_t length) noexcept nogil:
    return varint_size(zigzag(length)) + (length if length > 0 else 0)


cdef inline uint8_t *write_field(uint8_t *out, const uint8_t *data, int64_t length) noexcept nogil:
    out = write_number(out, length)
    if length > 0:
        memcpy(out, data, length)
        out += length
    return out


cdef class Encoder:
    """Encodes the rows of an Arrow record batch, in any order and grouping."""
    cdef Binary key, value, header_keys, header_values
    cdef const int32_t[::1] lists
    cdef const uint8_t[::1] list_valid
    cdef bint has_key, has_headers, lists_all_valid
    cdef Py_ssize_t list_offset
    cdef const int64_t[::1] timestamps

    def __init__(self, key, value, headers, timestamps):
        self.has_key = key is not None
        if self.has_key:
            self.key = Binary(key)
        self.value = Binary(value)
        self.timestamps = timestamps
        self.has_headers = headers is not None and len(headers) > 0
        if self.has_headers:
            valid, offsets = headers.buffers()[:2]
            self.list_offset = headers.offset
            self.lists_all_valid = valid is None
            if valid is not None:
                self.list_valid = _bytes(valid)
            self.lists = _bytes(offsets)[: 4 * (headers.offset + len(headers) + 1)].cast("i")
            pairs = headers.values
            self.header_keys = Binary(pairs.field("key"))
            self.header_values = Binary(pairs.field("value"))

    cdef inline void header_range(self, int64_t row, int64_t *start, int64_t *stop) noexcept:
        row += self.list_offset
        if not self.lists_all_valid and not (self.list_valid[row >> 3] >> (row & 7)) & 1:
            start[0] = stop[0] = 0
        else:
            start[0] = self.lists[row]
            stop[0] = self.lists[row + 1]

    cdef int64_t headers_size(self, int64_t row) noexcept:
        cdef int64_t start, stop, item, size
        if not self.has_headers:
            return 1
        self.header_range(row, &start, &stop)
        size = varint_size(zigzag(stop - start))
        for item in range(start, stop):
            size += field_size(self.header_keys.length(item)) + field_size(self.header_values.length(item))
        return size

    cdef uint8_t *write_headers(self, uint8_t *out, int64_t row) noexcept:
        cdef int64_t start, stop, item
        if not self.has_headers:
            out[0] = 0
            return out + 1
        self.header_range(row, &start, &stop)
        out = write_number(out, stop - start)
        for item in range(start, stop):
            out = write_field(out, self.header_keys.bytes_at(item), self.header_keys.length(item))
            out = write_field(out, self.header_values.bytes_at(item), self.header_values.length(item))
        return out

    cdef inline int64_t size_of(self, int64_t row, int64_t timestamp_delta, int64_t offset_delta) noexcept:
        """The length of a record, without the varint that states it."""
        return (
            1
            + varint_size(zigzag(timestamp_delta))
            + varint_size(zigzag(offset_delta))
            + field_size(self.key.length(row) if self.has_key else -1)
            + field_size(self.value.length(row))
            + self.headers_size(row)
        )

    def encode(self, const int32_t[::1] rows, Py_ssize_t start, int64_t max_bytes, Py_ssize_t room):
        cdef Py_ssize_t count = self.value.rows, at, stop = start
        cdef int64_t row, size, total = 0, base = 0, latest = 0, timestamp
        cdef uint8_t[::1] view
        cdef uint8_t *out
        if start >= rows.shape[0]:
            raise IndexError("no rows to encode")
        while stop < rows.shape[0]:
            row = rows[stop]
            if row < 0 or row >= count:
                raise IndexError(f"row {row} of {count}")
            timestamp = self.timestamps[row]
            if stop == start:
                base = latest = timestamp
            size = self.size_of(row, timestamp - base, stop - start)
            size += varint_size(zigzag(size))
            if stop > start and total + size > max_bytes:
                break
            total += size
            if timestamp > latest:
                latest = timestamp
            stop += 1
        result = bytearray(room + total)
        view = result
        out = &view[0] + room
        for at in range(start, stop):
            row = rows[at]
            timestamp = self.timestamps[row] - base
            out = write_number(out, self.size_of(row, timestamp, at - start))
            out[0] = 0  # attributes
            out = write_number(out + 1, timestamp)
            out = write_number(out, at - start)
            if self.has_key:
                out = write_field(out, self.key.bytes_at(row), self.key.length(row))
            else:
                out = write_number(out, -1)
            out = write_field(out, self.value.bytes_at(row), self.value.length(row))
            out = self.write_headers(out, row)
        return result, stop, base, latest


# Kafka's partitioner ------------------------------------------------------------------------------------

cdef inline uint32_t murmur2(const uint8_t *data, int64_t length) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995, h = <uint32_t>0x9747B28C ^ <uint32_t>length, k
    cdef int64_t left = length
    while left >= 4:
        k = data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h = (h * m) ^ k
        data += 4
        left -= 4
    if left > 0:
        if left == 3:
            h ^= <uint32_t>data[2] << 16
        if left >= 2:
            h ^= <uint32_t>data[1] << 8
        h = (h ^ data[0]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def partitions_of(column, int32_t partitions, int32_t[::1] out):
    cdef Binary keys = Binary(column)
    cdef int64_t row, length
    for row in range(keys.rows):
        length = keys.length(row)
        if length < 0:
            out[row] = -1
        else:
            out[row] = <int32_t>((murmur2(keys.bytes_at(row), length) & 0x7FFFFFFF) % <uint32_t>partitions)
