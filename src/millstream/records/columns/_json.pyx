# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""JSON objects to columns, compiled: the inner loops of ``json_columns``.

Only plain rows are read: an object of strict JSON and UTF-8 whose fields have the declared types and are
written the way that nearly all producers write them. Any other row is left to the general reader, which
can say what is wrong with it, so nothing here decides what a bad record is. Nothing is trusted: every
byte is read only after a check against the end.
"""
cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport isinf
from libc.stdint cimport INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT8_MAX, INT8_MIN
from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    # Not strtod, which reads a comma as the decimal point in some locales.
    double PyOS_string_to_double(const char *text, char **end, void *overflow)

cdef enum:
    DEEPEST = 64  # nesting depth of a skipped value
    LONGEST_NUMBER = 64

cdef enum:
    TEXT
    BOOLEAN
    BYTE
    SHORT
    INT
    LONG
    DOUBLE
    TIME

KINDS = {
    "string": TEXT,
    "boolean": BOOLEAN,
    "tinyint": BYTE,
    "smallint": SHORT,
    "int": INT,
    "bigint": LONG,
    "double": DOUBLE,
    "timestamp": TIME,
}

cdef int64_t[8] LOWEST = [0, 0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN, 0, 0]
cdef int64_t[8] HIGHEST = [0, 0, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX, 0, 0]
cdef double[23] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]


cdef struct Field:
    const uint8_t *name
    int32_t size
    int kind
    bint required


cdef struct Value:
    # One field of a row, as it was found. A text is given by its position in the JSON.
    bint there
    bint escaped
    int32_t start
    int32_t size
    int64_t number
    double real


cdef struct Text:
    int32_t start
    int32_t size
    bint escaped


@cython.final
cdef class Cursor:
    """A position in the JSON of one row."""
    cdef const uint8_t *base
    cdef const uint8_t *at
    cdef const uint8_t *end

    cdef inline bint byte(self, uint8_t wanted) noexcept:
        if self.at < self.end and self.at[0] == wanted:
            self.at += 1
            return True
        return False

    cdef inline void space(self) noexcept:
        while self.at < self.end and (
            self.at[0] == 0x20 or self.at[0] == 0x0A or self.at[0] == 0x0D or self.at[0] == 0x09
        ):
            self.at += 1

    cdef bint word(self, const char *text, int size) noexcept:
        if self.end - self.at < size or memcmp(self.at, text, size) != 0:
            return False
        self.at += size
        return True

    cdef bint text(self, Text *found) noexcept:
        """Read a text up to its closing quote. The opening quote has been consumed."""
        cdef const uint8_t *at = self.at
        cdef uint8_t seen = 0
        cdef uint8_t one
        cdef bint escaped = False
        while True:
            while at < self.end and at[0] != 0x22 and at[0] != 0x5C and at[0] >= 0x20:
                seen |= at[0]
                at += 1
            if at >= self.end or at[0] < 0x20:
                return False
            if at[0] == 0x22:
                break
            escaped = True
            if self.end - at < 2:
                return False
            one = at[1]
            if one == 0x75:  # u
                if not self.code(at + 2):
                    return False
                at += 6
            elif one == 0x22 or one == 0x5C or one == 0x2F or one == 0x62 or one == 0x66 \
                    or one == 0x6E or one == 0x72 or one == 0x74:
                at += 2
            else:
                return False
        found.start = <int32_t>(self.at - self.base)
        found.size = <int32_t>(at - self.at)
        found.escaped = escaped
        if seen & 0x80 and not is_utf8(self.at, at):
            return False
        self.at = at + 1
        return True

    cdef bint code(self, const uint8_t *at) noexcept:
        """True for four hex digits that encode a whole character, not half of a surrogate pair."""
        cdef int32_t value
        if self.end - at < 4:
            return False
        value = four(at)
        return value >= 0 and not 0xD800 <= value <= 0xDFFF

    cdef bint skip(self, int depth) noexcept:
        """Skip a value of a field that was not requested. It must still be valid JSON."""
        cdef Text text
        cdef Value number
        if depth > DEEPEST or self.at >= self.end:
            return False
        if self.byte(0x22):
            return self.text(&text)
        if self.byte(0x7B):
            self.space()
            if self.byte(0x7D):
                return True
            while True:
                self.space()
                if not self.byte(0x22) or not self.text(&text):
                    return False
                self.space()
                if not self.byte(0x3A):
                    return False
                self.space()
                if not self.skip(depth + 1):
                    return False
                self.space()
                if self.byte(0x7D):
                    return True
                if not self.byte(0x2C):
                    return False
        if self.byte(0x5B):
            self.space()
            if self.byte(0x5D):
                return True
            while True:
                self.space()
                if not self.skip(depth + 1):
                    return False
                self.space()
                if self.byte(0x5D):
                    return True
                if not self.byte(0x2C):
                    return False
        if self.at[0] == 0x74:
            return self.word("true", 4)
        if self.at[0] == 0x66:
            return self.word("false", 5)
        if self.at[0] == 0x6E:
            return self.word("null", 4)
        return self.number_of(&number, DOUBLE)

    cdef bint number_of(self, Value *value, int kind) noexcept:
        cdef const uint8_t *start = self.at
        cdef bint negative = self.byte(0x2D)
        cdef bint whole = True
        cdef int64_t mantissa = 0
        cdef int digits = 0  # number of digits counted, of which at most 18 go into the mantissa
        cdef int shift = 0  # the power of ten by which to multiply the mantissa
        cdef int exponent = 0
        cdef bint less = False
        if self.at >= self.end:
            return False
        if self.byte(0x30):
            if negative and kind != DOUBLE:
                return False
        else:
            if not 0x31 <= self.at[0] <= 0x39:
                return False
            while self.at < self.end and 0x30 <= self.at[0] <= 0x39:
                digits += 1
                if digits <= 18:
                    mantissa = 10 * mantissa + (self.at[0] - 0x30)
                self.at += 1
        if self.byte(0x2E):
            whole = False
            if self.at >= self.end or not 0x30 <= self.at[0] <= 0x39:
                return False
            while self.at < self.end and 0x30 <= self.at[0] <= 0x39:
                if mantissa or self.at[0] != 0x30:
                    digits += 1
                if digits <= 18:
                    mantissa = 10 * mantissa + (self.at[0] - 0x30)
                    shift -= 1
                self.at += 1
        if self.at < self.end and (self.at[0] == 0x65 or self.at[0] == 0x45):
            whole = False
            self.at += 1
            if not self.byte(0x2B):
                less = self.byte(0x2D)
            if self.at >= self.end or not 0x30 <= self.at[0] <= 0x39:
                return False
            while self.at < self.end and 0x30 <= self.at[0] <= 0x39:
                if exponent < 100_000:
                    exponent = 10 * exponent + (self.at[0] - 0x30)
                self.at += 1
            shift += -exponent if less else exponent
        if kind == DOUBLE:
            if whole and negative and mantissa == 0:
                return False  # readers disagree on the sign of this zero
            return self.real(value, start, negative, mantissa, digits, shift)
        if not whole or digits > 18:
            return False
        value.number = -mantissa if negative else mantissa
        return LOWEST[kind] <= value.number <= HIGHEST[kind]

    cdef bint real(
        self, Value *value, const uint8_t *start, bint negative, int64_t mantissa, int digits, int shift
    ) noexcept:
        cdef char[LONGEST_NUMBER + 1] copy
        cdef double exact
        if digits <= 15 and -22 <= shift <= 22:
            # Both operands are exact, and one operation rounds once.
            exact = <double>mantissa
            exact = exact / POWERS[-shift] if shift < 0 else exact * POWERS[shift]
            value.real = -exact if negative else exact
            return True
        if self.at - start > LONGEST_NUMBER:
            return False
        memcpy(copy, start, self.at - start)
        copy[self.at - start] = 0
        value.real = PyOS_string_to_double(copy, NULL, NULL)
        return not isinf(value.real)

    cdef bint time(self, Value *value) noexcept:
        """Read ``2026-01-31T10:30:00.123456Z``, or with an offset. Other notations are rarer."""
        cdef const uint8_t *at = self.at
        cdef int64_t year, month, day, hour, minute, second, micros = 0, scale = 100_000, zone = 0
        if self.end - at < 21:
            return False
        year, month, day = pair(at) * 100 + pair(at + 2), pair(at + 5), pair(at + 8)
        hour, minute, second = pair(at + 11), pair(at + 14), pair(at + 17)
        if pair(at) < 0 or pair(at + 2) < 0 or year < 1600 or not 1 <= month <= 12 or day < 1:
            return False
        if day > days_of(year, month) or not 0 <= hour <= 23 or not 0 <= minute <= 59 \
                or not 0 <= second <= 59:
            return False
        if at[4] != 0x2D or at[7] != 0x2D or (at[10] != 0x54 and at[10] != 0x20) or at[13] != 0x3A \
                or at[16] != 0x3A:
            return False
        at += 19
        if at[0] == 0x2E:
            at += 1
            if at >= self.end or not 0x30 <= at[0] <= 0x39:
                return False
            while at < self.end and 0x30 <= at[0] <= 0x39:
                if scale == 0:
                    return False
                micros += scale * (at[0] - 0x30)
                scale //= 10
                at += 1
        if at < self.end and at[0] == 0x5A:
            at += 1
        elif self.end - at >= 6 and (at[0] == 0x2B or at[0] == 0x2D) and at[3] == 0x3A:
            if not 0 <= pair(at + 1) <= 17 or not 0 <= pair(at + 4) <= 59:
                return False
            zone = 60 * pair(at + 1) + pair(at + 4)
            if at[0] == 0x2D:
                zone = -zone
            at += 6
        else:
            return False
        if at >= self.end or at[0] != 0x22:
            return False
        value.number = micros + 1_000_000 * (
            second + 60 * (minute - zone + 60 * (hour + 24 * days_since_1970(year, month, day)))
        )
        self.at = at + 1
        return value.number <= 253_402_300_799_999_999  # in UTC, too, no later than the year 9999


cdef inline int64_t pair(const uint8_t *at) noexcept:
    """Two digits as a number; far below zero if they are not digits."""
    if not 0x30 <= at[0] <= 0x39 or not 0x30 <= at[1] <= 0x39:
        return -100_000
    return 10 * (at[0] - 0x30) + (at[1] - 0x30)


cdef inline bint is_leap(int64_t year) noexcept:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


cdef inline int64_t days_of(int64_t year, int64_t month) noexcept:
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline int64_t days_since_1970(int64_t year, int64_t month, int64_t day) noexcept:
    # Years begin in March here, so that a leap day is the last day of its year.
    cdef int64_t since = year - 1 if month <= 2 else year
    cdef int64_t era = since // 400
    cdef int64_t of_era = since - 400 * era
    cdef int64_t of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return 146_097 * era + 365 * of_era + of_era // 4 - of_era // 100 + of_year - 719_468


cdef inline int32_t four(const uint8_t *at) noexcept:
    """Four hexadecimal digits as a number; -1 if they are not digits."""
    cdef int32_t value = 0
    cdef int place
    cdef uint8_t one
    for place in range(4):
        one = at[place]
        if 0x30 <= one <= 0x39:
            value = 16 * value + one - 0x30
        elif 0x41 <= one <= 0x46:
            value = 16 * value + one - 0x37
        elif 0x61 <= one <= 0x66:
            value = 16 * value + one - 0x57
        else:
            return -1
    return value


cdef bint is_utf8(const uint8_t *at, const uint8_t *end) noexcept:
    cdef uint8_t one
    cdef int more, place
    while at < end:
        one = at[0]
        if one < 0x80:
            at += 1
            continue
        if 0xC2 <= one <= 0xDF:
            more = 1
        elif 0xE0 <= one <= 0xEF:
            more = 2
        elif 0xF0 <= one <= 0xF4:
            more = 3
        else:
            return False
        if end - at <= more:
            return False
        for place in range(1, more + 1):
            if at[place] & 0xC0 != 0x80:
                return False
        # An overlong encoding, a surrogate, or a code point beyond the last.
        if (one == 0xE0 and at[1] < 0xA0) or (one == 0xED and at[1] > 0x9F) \
                or (one == 0xF0 and at[1] < 0x90) or (one == 0xF4 and at[1] > 0x8F):
            return False
        at += more + 1
    return True


cdef int32_t unescaped(const uint8_t *at, int32_t size, uint8_t *out) noexcept:
    """Write a text without its escapes, which were checked, and return its length. Without ``out``, only
    return the length."""
    cdef const uint8_t *end = at + size
    cdef int32_t written = 0
    cdef int32_t value
    cdef uint8_t one
    while at < end:
        if at[0] != 0x5C:
            value, one = -1, at[0]
            at += 1
        elif at[1] == 0x75:
            value, one = four(at + 2), 0
            at += 6
        else:
            value, one = -1, at[1]
            at += 2
            if one == 0x62:
                one = 0x08
            elif one == 0x66:
                one = 0x0C
            elif one == 0x6E:
                one = 0x0A
            elif one == 0x72:
                one = 0x0D
            elif one == 0x74:
                one = 0x09
        if value < 0x80:
            if out != NULL:
                out[written] = one if value < 0 else <uint8_t>value
            written += 1
        elif value < 0x800:
            if out != NULL:
                out[written] = 0xC0 | (value >> 6)
                out[written + 1] = 0x80 | (value & 0x3F)
            written += 2
        else:
            if out != NULL:
                out[written] = 0xE0 | (value >> 12)
                out[written + 1] = 0x80 | ((value >> 6) & 0x3F)
                out[written + 2] = 0x80 | (value & 0x3F)
            written += 3
    return written


@cython.final
cdef class Reader:
    """Reads rows into the fields that it was created for."""
    cdef Field *fields
    cdef Value *row
    cdef int count
    cdef tuple names  # keeps the names alive that the fields point to

    def __cinit__(self, fields):
        self.count = len(fields)
        self.names = tuple(name for name, _, _ in fields)
        self.fields = <Field *>PyMem_Malloc(self.count * sizeof(Field))
        self.row = <Value *>PyMem_Malloc(self.count * sizeof(Value))
        if self.fields == NULL or self.row == NULL:
            raise MemoryError
        cdef int index
        for index, (name, kind, required) in enumerate(fields):
            self.fields[index].name = <const uint8_t *><const char *>name
            self.fields[index].size = len(name)
            self.fields[index].kind = KINDS[kind]
            self.fields[index].required = required

    def __dealloc__(self):
        PyMem_Free(self.fields)
        PyMem_Free(self.row)

    cdef int field(self, const uint8_t *name, int32_t size, int likely) noexcept:
        """The number of the field with this name, -1 if there is none. Objects mostly have theirs in the
        same order."""
        cdef int index = likely
        cdef int tried
        for tried in range(self.count):
            if index >= self.count:
                index = 0
            if self.fields[index].size == size and memcmp(self.fields[index].name, name, size) == 0:
                return index
            index += 1
        return -1

    cdef bint read_row(self, Cursor cursor) noexcept:
        cdef int index, likely = 0
        cdef Text name
        for index in range(self.count):
            self.row[index].there = False
        cursor.space()
        if not cursor.byte(0x7B):
            return False
        cursor.space()
        if not cursor.byte(0x7D):
            while True:
                cursor.space()
                if not cursor.byte(0x22) or not cursor.text(&name) or name.escaped:
                    return False
                cursor.space()
                if not cursor.byte(0x3A):
                    return False
                cursor.space()
                index = self.field(cursor.base + name.start, name.size, likely)
                if index < 0:
                    if not cursor.skip(0):
                        return False
                elif not self.read_value(cursor, index):
                    return False
                else:
                    likely = index + 1
                cursor.space()
                if cursor.byte(0x7D):
                    break
                if not cursor.byte(0x2C):
                    return False
        cursor.space()
        if cursor.at != cursor.end:
            return False
        for index in range(self.count):
            if self.fields[index].required and not self.row[index].there:
                return False
        return True

    cdef bint read_value(self, Cursor cursor, int index) noexcept:
        cdef Value *value = &self.row[index]
        cdef int kind = self.fields[index].kind
        cdef Text text
        value.there = False  # of two fields with the same name the later one counts, null or not
        if cursor.at >= cursor.end:
            return False
        if cursor.at[0] == 0x6E:
            return cursor.word("null", 4)
        if kind == TEXT:
            if not cursor.byte(0x22) or not cursor.text(&text):
                return False
            value.start, value.size, value.escaped = text.start, text.size, text.escaped
        elif kind == BOOLEAN:
            value.number = cursor.at[0] == 0x74
            if not (cursor.word("true", 4) if value.number else cursor.word("false", 5)):
                return False
        elif kind == TIME:
            if not cursor.byte(0x22) or not cursor.time(value):
                return False
        elif not cursor.number_of(value, kind):
            return False
        value.there = True
        return True

    def read(self, const int32_t[::1] offsets, const uint8_t[::1] data, rows, list outs):
        """Read ``rows`` values from ``data``, each from one of ``offsets`` to the next. ``outs`` has two
        buffers for every field: a zeroed bitmap of the values that exist, and the numbers. For a text
        these are its start and its size, which is below zero if it has escapes. Returns a bitmap of the
        plain rows."""
        cdef Cursor cursor = Cursor()
        cdef int64_t count = rows, row
        cdef int index
        cdef bytearray plain = bytearray((count + 7) // 8)
        cdef uint8_t *is_plain = plain
        cdef uint8_t **valid = <uint8_t **>PyMem_Malloc(self.count * sizeof(uint8_t *))
        cdef void **numbers = <void **>PyMem_Malloc(self.count * sizeof(void *))
        cdef uint8_t[::1] view
        cdef Value *value
        if valid == NULL or numbers == NULL:
            PyMem_Free(valid)
            PyMem_Free(numbers)
            raise MemoryError
        try:
            for index, (bitmap, buffer) in enumerate(outs):
                view = bitmap
                valid[index] = &view[0] if count else NULL
                view = buffer
                numbers[index] = &view[0] if count else NULL
            cursor.base = &data[0] if data.shape[0] else NULL
            for row in range(count):
                cursor.at = cursor.base + offsets[row]
                cursor.end = cursor.base + offsets[row + 1]
                if not self.read_row(cursor):
                    continue
                is_plain[row >> 3] |= 1 << (row & 7)
                for index in range(self.count):
                    value = &self.row[index]
                    if value.there:
                        valid[index][row >> 3] |= 1 << (row & 7)
                        put(numbers[index], row, self.fields[index].kind, value)
        finally:
            PyMem_Free(valid)
            PyMem_Free(numbers)
        return plain


cdef inline void put(void *out, int64_t row, int kind, Value *value) noexcept:
    if kind == TEXT:
        (<int32_t *>out)[2 * row] = value.start
        (<int32_t *>out)[2 * row + 1] = ~value.size if value.escaped else value.size
    elif kind == BOOLEAN:
        if value.number:
            (<uint8_t *>out)[row >> 3] |= 1 << (row & 7)
    elif kind == BYTE:
        (<int8_t *>out)[row] = <int8_t>value.number
    elif kind == SHORT:
        (<int16_t *>out)[row] = <int16_t>value.number
    elif kind == INT:
        (<int32_t *>out)[row] = <int32_t>value.number
    elif kind == DOUBLE:
        (<double *>out)[row] = value.real
    else:
        (<int64_t *>out)[row] = value.number


def text_size(const int32_t[::1] places, const uint8_t[::1] valid, const uint8_t[::1] data, rows):
    """The total size in bytes of a field's texts."""
    cdef int64_t size = 0, row, count = rows
    for row in range(count):
        if valid[row >> 3] >> (row & 7) & 1:
            if places[2 * row + 1] >= 0:
                size += places[2 * row + 1]
            else:
                size += unescaped(&data[0] + places[2 * row], ~places[2 * row + 1], NULL)
    return size


def texts(
    const int32_t[::1] places, const uint8_t[::1] valid, const uint8_t[::1] data, rows,
    int32_t[::1] offsets, uint8_t[::1] out,
):
    """Copy the texts of a field, one after another."""
    cdef int32_t size = 0
    cdef int64_t row, count = rows
    cdef uint8_t *to = &out[0] if out.shape[0] else NULL
    offsets[0] = 0
    for row in range(count):
        if valid[row >> 3] >> (row & 7) & 1:
            if places[2 * row + 1] > 0:
                memcpy(to + size, &data[0] + places[2 * row], places[2 * row + 1])
                size += places[2 * row + 1]
            elif places[2 * row + 1] < 0:
                size += unescaped(&data[0] + places[2 * row], ~places[2 * row + 1], to + size)
        offsets[row + 1] = size
