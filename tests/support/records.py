"""Records for property tests, and logs of their batches with offsets as a broker assigns them."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from millstream.records import batch
from millstream.records.build import Record

CODECS = st.integers(0, 4)

_DATA = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
_HEADERS = st.lists(
    st.tuples(st.text("aZ0é€\U0001f4a7", max_size=8), st.none() | st.binary(max_size=8)), max_size=3
).map(tuple)
_NEAR = st.integers(1_700_000_000_000 - 100_000, 1_700_000_000_000 + 100_000)
_FAR = st.integers(-1, 2**50)


def records(headers: bool = True) -> st.SearchStrategy[Record]:
    return st.builds(
        Record,
        key=_DATA,
        value=_DATA,
        headers=_HEADERS if headers else st.just(()),
        timestamp=_NEAR | _FAR,
        offset=st.just(-1),
    )


def record_lists(min_size: int = 1, max_size: int = 12) -> st.SearchStrategy[list[Record]]:
    """Mostly short lists of records. Some have no headers at all, the common case, which has its own path."""
    return st.booleans().flatmap(
        lambda headers: st.lists(records(headers), min_size=min_size, max_size=max_size)
    )


def as_log(batches: Iterable[bytearray], base_offset: int = 0) -> bytearray:
    """The batches one after the other, with offsets assigned as a broker does."""
    log = bytearray()
    for one in batches:
        batch.stamp(one, 0, base_offset, 0)
        base_offset = batch.read_header(one).next_offset
        log += one
    return log
