"""kcat, the command-line client people have at hand: lists, produces, consumes, alone and in a group."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from millstream import Broker

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)"
)


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", broker.address, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_it_produces_it_consumes_with_keys_and_headers(millstream_broker: Broker) -> None:
    lines = "".join(f"key-{n}:value-{n}\n" for n in range(1000))
    kcat(millstream_broker, "-P", "-t", "words", "-K", ":", "-H", "origin=test", stdin=lines)

    out = kcat(millstream_broker, "-C", "-t", "words", "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n")

    assert out == "".join(f"key-{n}:value-{n} origin=test\n" for n in range(1000))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_compressed_batches_come_back_as_they_were(millstream_broker: Broker, codec: str) -> None:
    text = "".join(f"{'a' * 200} {n}\n" for n in range(500))
    kcat(millstream_broker, "-P", "-t", f"words-{codec}", "-z", codec, stdin=text)

    assert kcat(millstream_broker, "-C", "-t", f"words-{codec}", "-e", "-q") == text


def test_it_lists_brokers_and_topics(millstream_broker: Broker) -> None:
    kcat(millstream_broker, "-P", "-t", "listed", stdin="x\n")

    listing = json.loads(kcat(millstream_broker, "-L", "-J"))

    assert [broker["name"] for broker in listing["brokers"]] == [millstream_broker.address]
    (topic,) = (topic for topic in listing["topics"] if topic["topic"] == "listed")
    assert [(p["partition"], p["leader"]) for p in topic["partitions"]] == [(0, listing["brokers"][0]["id"])]


def test_it_finds_the_offset_of_a_time(millstream_broker: Broker) -> None:
    kcat(millstream_broker, "-P", "-t", "timed", stdin="first\nsecond\n")
    stamps = kcat(millstream_broker, "-C", "-t", "timed", "-e", "-q", "-f", "%T\n").split()

    assert kcat(millstream_broker, "-Q", "-t", f"timed:0:{stamps[0]}").strip() == "timed [0] offset 0"


def test_a_group_goes_on_where_it_stopped(millstream_broker: Broker) -> None:
    kcat(millstream_broker, "-P", "-t", "jobs", stdin="one\ntwo\n")
    first = kcat(millstream_broker, "-G", "workers", "-X", "auto.offset.reset=earliest", "-e", "-q", "jobs")
    kcat(millstream_broker, "-P", "-t", "jobs", stdin="three\n")
    second = kcat(millstream_broker, "-G", "workers", "-X", "auto.offset.reset=earliest", "-e", "-q", "jobs")

    assert (first, second) == ("one\ntwo\n", "three\n")
