"""The same small program on every client library there is: administers, produces, seeks, consumes in groups
of both protocols, and commits and aborts transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.programs import PROGRAMS, Member, Program, ProgramUnavailable, values, wait_until_read
from tests.support.serve import ServeProcess
from tests.support.topics import create_topic, produce
from tests.support.topics import values as records
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our broker alone: on Apache Kafka, whose answers are held against ours elsewhere, nothing is learnt."""
    with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.address


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    return available(request.param)


def available(program: Program) -> Program:
    try:
        program.command()
    except ProgramUnavailable as reason:
        pytest.skip(str(reason))
    return program


def test_it_administers_topics(address: str, name: str, program: Program) -> None:
    (said,) = program.ask(address, "administer", name)

    assert said == {
        "partitions": 2,
        "retention": "60000",
        "again": 36,  # TOPIC_ALREADY_EXISTS
        "altered": "70000",
        "grown": 3,
        "listed": True,
        "missing": 3,  # UNKNOWN_TOPIC_OR_PARTITION
    }


def test_what_it_produces_in_every_codec_it_reads_from_an_offset_and_from_a_time(
    address: str, name: str, program: Program
) -> None:
    create_topic(address, name, 2)
    for codec in program.codecs:
        told = program.ask(address, "produce", name, 40, codec)
        assert {each["partition"] for each in told} == {0, 1}
    count = 20 * len(program.codecs)  # in each partition

    read = program.ask(address, "read", name, 1, 0, count)

    assert [record["offset"] for record in read] == list(range(count))
    numbers = [number for _ in program.codecs for number in range(1, 40, 2)]
    assert [(record["key"], record["value"], record["header"]) for record in read] == [
        (f"k{number}", f"v{number}", str(number)) for number in numbers
    ]
    assert [each["offset"] for each in program.ask(address, "read", name, 0, count - 3, 3)] == [
        count - 3,
        count - 2,
        count - 1,
    ]
    assert program.ask(address, "read", name, 1, "@1000", 2) == read[:2]


@pytest.mark.parametrize(
    ("program", "protocol"),
    [pytest.param(p, protocol, id=f"{p.name}-{protocol}") for p in PROGRAMS for protocol in p.protocols],
)
def test_a_group_of_two_shares_a_topic_and_goes_on_where_it_stopped(
    address: str, name: str, program: Program, protocol: str
) -> None:
    available(program)
    create_topic(address, name, 2)
    for partition in range(2):
        produce(address, name, records(*(f"{partition}-{n}" for n in range(50))), partition)

    def member() -> Member:
        return Member(program, address, name, name, protocol)

    with ExitStack() as running:
        first = running.enter_context(member())
        wait_until_read(100, first)
        second = running.enter_context(member())

        def both_read() -> bool:
            for partition in range(2):
                produce(address, name, records(f"more-{partition}"), partition)
            return bool(second.read) and {r["partition"] for r in second.read} != {0, 1}

        wait_for(both_read, what="the second member reads a partition", timeout=60, every=0.3)
        (described,) = confluent().ask(address, "describe-group", name, name)
        assert (described["state"], described["members"]) == ("Stable", 2)
        second.stop()
        first.stop()

    (described,) = confluent().ask(address, "describe-group", name, name)
    assert (described["state"], described["members"]) == ("Empty", 0)
    for partition in range(2):
        produce(address, name, records(*(f"last-{partition}-{n}" for n in range(5))), partition)
    with member() as third:
        wait_until_read(10, third)
        third.stop()
    assert set(values(third)) - {"more-0", "more-1"} == {f"last-{p}-{n}" for p in range(2) for n in range(5)}


def confluent() -> Program:
    return PROGRAMS[0]


def test_it_describes_and_deletes_a_group(address: str, name: str, program: Program) -> None:
    create_topic(address, name, 2)
    produce(address, name, records("a", "b", "c"))
    with Member(confluent(), address, name, name, "classic") as member:
        wait_until_read(3, member)
        member.stop()

    (described,) = program.ask(address, "describe-group", name, name)

    assert (described["state"], described["members"]) == ("Empty", 0)
    assert {p: offset for p, offset in described["offsets"].items() if offset >= 0} == {"0": 3}
    if not program.deletes_groups:
        return
    program.ask(address, "delete-group", name)
    (described,) = confluent().ask(address, "describe-group", name, name)
    assert described["offsets"] == {}


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.has_transactions], ids=lambda p: p.name)
def test_readers_of_committed_records_see_what_it_committed_and_not_what_it_aborted(
    address: str, name: str, program: Program
) -> None:
    available(program)
    create_topic(address, name, 2)

    program.ask(address, "transact", name, name)

    read = program.ask(address, "read", name, 0, 0, 4)
    assert [record["value"] for record in read] == ["yes-0", "yes-1", "also-0", "also-1"]
