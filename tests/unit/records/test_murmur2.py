from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from millstream.records.murmur2 import murmur2, partition_of

# From Apache Kafka's own test of its hash, signed there.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFF_FFFF


@given(key=st.binary(max_size=60))
def test_the_hash_agrees_with_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFF_FFFF


@given(key=st.binary(max_size=60), partitions=st.integers(1, 1000))
def test_a_partition_is_always_one_of_them(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions
