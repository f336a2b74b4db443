# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Checks a batch's records against its header, compiled: see ``check``.

Nothing here trusts a byte: every read is preceded by a check against the end of the record.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t

from millstream.records._fields cimport (
    FEWER, FINE, HEADER_KEY, HEADERS, LEFT_OVER, MAX_TIME, MORE, NO_KEY, OFFSET, OUT_OF_TIME, RECORD, TIME,
    Cursor, Fault, field, number,
)

cdef enum:
    LONG = 4 * 1024 * 1024  # bytes of records from which releasing the interpreter's lock pays off
    ROWS = 2  # where the numbers of refused records begin in the details

cdef struct Rules:
    int64_t count
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t oldest
    int64_t newest
    bint keys


cdef inline bint headers_end(Cursor *c) noexcept nogil:
    """Skip a record's headers; false, with the fault set, if they are invalid."""
    cdef int64_t left = number(c, 32), length
    if c.fault != FINE:
        return False
    if left < 0 or left > c.end - c.at:
        c.fault = HEADERS
        return False
    while left > 0:
        left -= 1
        length = field(c)
        if c.fault == FINE and length < 0:
            c.fault = HEADER_KEY
        if c.fault != FINE:
            return False
        c.at += length
        length = field(c)
        if c.fault != FINE:
            return False
        if length > 0:
            c.at += length
    return True


cdef Fault examine(const uint8_t *at, const uint8_t *stop, Rules *rules, int64_t *details, int64_t room) noexcept nogil:
    """The first fault found. With ``details``, records refused for their contents, not for their encoding,
    are noted there and skipped: those out of time if there are any, otherwise those without a key."""
    cdef Cursor c
    cdef Fault refused = FINE, why
    cdef int64_t row, length, delta, timestamp, key_length, latest = INT64_MIN, noted = 0
    c.at = at
    c.fault = FINE
    for row in range(rules.count):
        if details != NULL:
            details[0] = row
        if c.at == stop:
            return FEWER
        c.end = stop
        length = number(&c, 32)
        if c.fault != FINE or length <= 0 or length > stop - c.at:
            return c.fault or RECORD
        c.end = c.at + length
        c.at += 1  # attributes, unused
        delta = number(&c, 64)
        if c.fault != FINE:
            return c.fault
        if (delta > 0 and rules.base_timestamp > INT64_MAX - delta) or (
            delta < 0 and rules.base_timestamp < INT64_MIN - delta
        ):
            return TIME
        timestamp = rules.base_timestamp + delta
        delta = number(&c, 32)
        if c.fault != FINE:
            return c.fault
        if delta != row:
            return OFFSET
        key_length = field(&c)
        if c.fault != FINE:
            return c.fault
        if key_length > 0:
            c.at += key_length
        length = field(&c)
        if c.fault != FINE:
            return c.fault
        if length > 0:
            c.at += length
        if c.at + 1 == c.end and c.at[0] == 0:  # no headers, as in most records
            c.at += 1
        elif not headers_end(&c):
            return c.fault
        if c.at != c.end:
            return LEFT_OVER
        if timestamp > latest:
            latest = timestamp
        why = FINE
        if key_length < 0 and rules.keys:
            why = NO_KEY
        elif (timestamp < rules.oldest or timestamp > rules.newest) and timestamp != -1:
            why = OUT_OF_TIME
        if why != FINE:
            if details == NULL:
                return why
            if refused == FINE or refused < why:
                refused = why
                noted = 0
            if why == refused and noted < room:
                details[ROWS + noted] = row
                noted += 1
    if c.at != stop:
        return MORE
    if details != NULL:
        details[0] = noted
        details[1] = latest
    if refused != FINE:
        return refused
    return MAX_TIME if latest != rules.max_timestamp else FINE


def check(records, Py_ssize_t start, int64_t count, int64_t base_timestamp, int64_t max_timestamp,
          int64_t oldest, int64_t newest, bint keys, int64_t[::1] details=None):
    # Py_buffer, because a typed view costs microseconds, and most batches of a busy broker are small.
    cdef Py_buffer view
    cdef Rules rules
    cdef const uint8_t *at
    cdef int64_t *noted = NULL
    cdef int64_t size, room = 0
    cdef Fault fault = FEWER
    rules.count, rules.base_timestamp, rules.max_timestamp = count, base_timestamp, max_timestamp
    rules.oldest, rules.newest, rules.keys = oldest, newest, keys
    if details is not None:
        noted = &details[0]
        noted[0] = 0
        room = details.shape[0] - ROWS
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    size = view.len - start
    if size > 0:
        at = <const uint8_t *>view.buf + start
        if size < LONG:
            fault = examine(at, at + size, &rules, noted, room)
        else:
            with nogil:
                fault = examine(at, at + size, &rules, noted, room)
    PyBuffer_Release(&view)
    return fault
