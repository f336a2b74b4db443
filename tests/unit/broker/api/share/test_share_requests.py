"""ShareFetch and ShareAcknowledge, request by request."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.share_states import SavedShare
from millstream.broker.groups.share.saved_state import to_bytes
from millstream.broker.groups.share.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    LogBatch,
    SharePartition,
)
from millstream.broker.server import Server
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.group_config import GroupConfig
from millstream.core.kafka_errors import (
    GROUP_ID_NOT_FOUND,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.log.segment.segments import LogSlice
from millstream.records.batch import batches
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import a_batch, a_transactional_batch
from tests.support.share_member import ShareMember, acquired

Connect = Callable[[], FakePeer]
Steps = Callable[[Server, Connect], Awaitable[None]]
EARLIEST = {"share.auto.offset.reset": "earliest"}


async def begin(server: Server, **settings: str) -> None:
    """The group "g" reads from the start."""
    own = {name.replace("_", "."): value for name, value in settings.items()}
    await server.node.alter_group("g", {**EARLIEST, **own})
    server.node.coordinator.share.create("g")


def append(server: Server, batch: bytearray, partition: int = 0) -> None:
    """Write a batch as Produce does, at the end of the turn."""
    found = server.node.topics.partition("t", partition)
    assert found is not None
    found.log.transactions_gate = None  # nobody coordinates here
    if not server.turn.scheduled:
        server.turn.schedule()
    found.log.append(batch, server.clock.now_ms())
    found.turn_bytes += len(batch)
    if not found.is_staged:
        found.is_staged = True
        server.turn.partitions.append(found)


async def append_plain(server: Server, *values: bytes, partition: int = 0) -> None:
    append(server, a_batch(*values, at=server.clock.now_ms()), partition)
    await asyncio.sleep(0)


def member(server: Server, connect: Connect, name: str = "m") -> ShareMember:
    return ShareMember(connect(), server.node.catalogue.topics["t"].id, member=name)


async def joined(server: Server, connect: Connect, name: str = "m", *partitions: int) -> ShareMember:
    """A member with a session, whose partitions are ready."""
    found = member(server, connect, name)
    await found.fetches(*(partitions or (0,)), max_records=0)
    for index in partitions or (0,):
        server.node.share_delivery.open("g", (found.topic.bytes, index))
    async with asyncio.timeout(20):
        while not all(o.share is not None for o in server.node.share_delivery.of_group("g")):  # noqa: ASYNC110
            await asyncio.sleep(0)
    return found


def partition_of(response: Any, index: int = 0) -> Any:
    return next(p for topic in response.responses for p in topic.partitions if p.partition_index == index)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_given_out_acknowledged_and_not_given_out_again(version: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c")
        one = await joined(server, connect)
        response = await one.fetches(version=version)
        assert response.acquisition_lock_timeout.total_seconds() == 30
        assert acquired(response) == [(0, 2, 1)]
        assert [batch.base_offset for _, batch in batches(partition_of(response).records)] == [0]
        answer = await one.acknowledges({0: [(0, 2, [ACCEPT])]}, version=version)
        assert partition_of(answer).error_code.value == 0
        assert acquired(await one.fetches(version=version)) == []
        other = await joined(server, connect, "n")
        assert acquired(await other.fetches(version=version)) == []

    with_server(steps)


def test_acknowledgements_ride_on_a_fetch_and_their_partitions_are_always_in_the_response() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b")
        one = await joined(server, connect)
        await one.fetches()
        response = await one.fetches(given={0: [(0, 1, [REJECT, RELEASE])]})
        assert partition_of(response).acknowledge_error_code == 0
        assert acquired(response) == [(1, 1, 2)]
        assert acquired(await one.fetches()) == [], "a partition without news is left out"

    with_server(steps)


@pytest.mark.parametrize("wake", ["append", "release", "time-out"])
def test_a_fetch_waits_for_records_that_come_or_come_back(wake: str) -> None:
    clock = ManualClock()

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        holder = await joined(server, connect, "holder")
        if wake != "append":
            await append_plain(server, b"a")
            assert acquired(await holder.fetches()) == [(0, 0, 1)]
        one = await joined(server, connect)
        one.peer.give(one.fetch(wait=60_000))
        await asyncio.sleep(0.01)
        one.peer.take()
        assert not one.peer.connection.is_idle, "it waits"
        if wake == "append":
            await append_plain(server, b"a")
        elif wake == "release":
            await holder.acknowledges({0: [(0, 0, [RELEASE])]})
        else:
            clock.advance(31)
            server.node.share_delivery.tick(clock.monotonic())
        assert acquired(await one.fetched()) == [(0, 0, 1 if wake == "append" else 2)]

    with_server(steps, clock=clock)


def test_what_a_member_holds_comes_back_when_its_session_or_its_connection_ends() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b")
        one = await joined(server, connect)
        assert acquired(await one.fetches()) == [(0, 1, 1)]
        ended = await one.acknowledges({0: [(0, 0, [ACCEPT])]}, epoch=-1)
        assert partition_of(ended).error_code.value == 0
        assert (await one.fetches()).error_code.value == SHARE_SESSION_NOT_FOUND
        two = await joined(server, connect, "two")
        assert acquired(await two.fetches()) == [(1, 1, 2)]
        two.peer.close()
        assert len(server.node.share_delivery.sessions) == 0
        three = await joined(server, connect, "three")
        assert acquired(await three.fetches()) == [(1, 1, 3)]
        last = await three.fetches(epoch=-1, given={0: [(1, 1, [ACCEPT])]})
        assert partition_of(last).acknowledge_error_code == 0
        assert acquired(last) == []

    with_server(steps)


def test_epochs_of_sessions() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        one = member(server, connect)
        assert (await one.fetches(0, epoch=1)).error_code.value == SHARE_SESSION_NOT_FOUND
        assert (await one.fetches(0, epoch=-1)).error_code.value == SHARE_SESSION_NOT_FOUND
        assert (await one.acknowledges({}, epoch=0)).error_code.value == INVALID_SHARE_SESSION_EPOCH
        refused = await one.fetches(epoch=0, given={0: [(0, 0, [ACCEPT])]})
        assert refused.error_code.value == INVALID_REQUEST
        first = await one.fetches(0, 1)
        assert [p.partition_index for p in first.responses[0].partitions] == [0, 1]
        assert (await one.fetches(epoch=7)).error_code.value == INVALID_SHARE_SESSION_EPOCH
        assert (await one.acknowledges({}, epoch=7)).error_code.value == INVALID_SHARE_SESSION_EPOCH
        assert (await one.acknowledges({})).error_code.value == 0
        assert (await one.fetches()).error_code.value == 0
        for nobody in ("", "x" * 37):
            one.member = nobody
            assert (await one.fetches(epoch=0)).error_code.value == INVALID_REQUEST
        one.member, one.group = "m", "another"
        assert (await one.fetches(epoch=0)).error_code.value == GROUP_ID_NOT_FOUND
        assert (await one.acknowledges({}, epoch=1)).error_code.value == GROUP_ID_NOT_FOUND

    with_server(steps)


def test_partitions_join_and_leave_a_session() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a")
        await append_plain(server, b"b", partition=1)
        one = await joined(server, connect, "m", 0, 1)
        both = await one.fetches()
        assert (acquired(both, 0), acquired(both, 1)) == ([(0, 0, 1)], [(0, 0, 1)])
        await one.fetches(forget=[1])
        await append_plain(server, b"c")
        await append_plain(server, b"d", partition=1)
        now = await one.fetches()
        assert (acquired(now, 0), acquired(now, 1)) == ([(1, 1, 1)], [])
        # Named only to acknowledge, it joins again.
        again = await one.fetches(given={1: [(0, 0, [ACCEPT])]})
        assert partition_of(again, 1).acknowledge_error_code == 0
        assert acquired(again, 1) == [(1, 1, 1)]

    with_server(steps)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([(0, 5, [ACCEPT])], INVALID_REQUEST),  # never delivered
        ([(1, 0, [ACCEPT])], INVALID_REQUEST),
        ([(0, 1, [ACCEPT]), (1, 1, [ACCEPT])], INVALID_REQUEST),
        ([(0, 1, [])], INVALID_REQUEST),
        ([(0, 2, [ACCEPT, ACCEPT])], INVALID_REQUEST),
        ([(0, 0, [5])], INVALID_REQUEST),
        ([(0, 0, [-1])], INVALID_REQUEST),
        ([(0, 0, [RENEW])], INVALID_REQUEST),  # isRenewAck is not set
        ([(0, 1, [ACCEPT]), (3, 3, [ACCEPT])], INVALID_RECORD_STATE),  # 3 is another member's
    ],
)
def test_wrong_acknowledgements_change_nothing(given: Any, error: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c")
        await append_plain(server, b"d")
        one = await joined(server, connect)
        assert acquired(await one.fetches(max_records=1)) == [(0, 2, 1)]
        other = await joined(server, connect, "other")
        assert acquired(await other.fetches()) == [(3, 3, 1)]
        assert partition_of(await one.acknowledges({0: given})).error_code.value == error
        answer = await one.fetches(given={0: given})
        assert partition_of(answer).acknowledge_error_code == error
        fine = await one.acknowledges({0: [(0, 2, [ACCEPT, GAP, RELEASE])]})
        assert partition_of(fine).error_code.value == 0

    with_server(steps)


def test_unknown_topics_and_partitions() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        one = await joined(server, connect)
        wrong = await one.acknowledges({9: [(0, 0, [ACCEPT])]})
        assert partition_of(wrong, 9).error_code.value == UNKNOWN_TOPIC_OR_PARTITION
        read = await one.fetches(9, wait=60_000)
        assert partition_of(read, 9).error_code.value == UNKNOWN_TOPIC_OR_PARTITION
        await one.fetches(forget=[9])
        one.peer.give(one.fetch(wait=60_000))
        await asyncio.sleep(0)
        await server.node.topic_admin.delete("t")
        gone = await one.fetched()
        assert partition_of(gone).error_code.value == UNKNOWN_TOPIC_ID
        assert len(server.node.share_delivery) == 0
        assert not server.node.catalogue.share_states.of("g")

    with_server(steps)


def test_a_renewal_fetches_nothing_and_must_not_ask_for_anything() -> None:
    clock = ManualClock()

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b")
        one = await joined(server, connect)
        await one.fetches()
        await append_plain(server, b"c")
        given = {0: [(0, 1, [RENEW])]}
        refused = await one.fetches(epoch=one.epoch, is_renew_ack=True, max_bytes=1, given=given)
        assert refused.error_code.value == INVALID_REQUEST
        clock.advance(20)
        renewed = await one.fetches(is_renew_ack=True, given=given)
        assert partition_of(renewed).acknowledge_error_code == 0
        assert acquired(renewed) == []
        clock.advance(20)
        server.node.share_delivery.tick(clock.monotonic())
        fine = await one.acknowledges({0: [(0, 1, [ACCEPT])]})
        assert partition_of(fine).error_code.value == 0

    with_server(steps, clock=clock)


def test_a_record_limit_sends_the_whole_batch_and_gives_out_a_part_of_it() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c")
        await append_plain(server, b"d")
        one = await joined(server, connect)
        response = await one.fetches(share_acquire_mode=1, max_records=2)
        assert acquired(response) == [(0, 1, 1)]
        assert [batch.last_offset for _, batch in batches(partition_of(response).records)] == [2]
        other = await joined(server, connect, "other")
        assert acquired(await other.fetches(share_acquire_mode=1, max_records=2)) == [(2, 3, 1)]

    with_server(steps)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_aborted_records_markers_and_open_transactions(level: str) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server, share_isolation_level=level)
        partition = server.node.topics.partition("t", 0)
        assert partition is not None
        append(server, a_transactional_batch(0, b"a", b"b", producer=7, at=server.clock.now_ms()))
        append(server, a_batch(b"c", at=server.clock.now_ms()))
        partition.append_marker(server.turn, 7, 0, commit=False, coordinator_epoch=0)
        append(server, a_transactional_batch(2, b"d", producer=7, at=server.clock.now_ms()))
        await asyncio.sleep(0)
        one = await joined(server, connect)
        first = acquired(await one.fetches())
        if level == "read_uncommitted":
            assert first == [(0, 2, 1), (4, 4, 1)]
            return
        assert first == [(2, 2, 1)]
        one.peer.give(one.fetch(wait=60_000))
        await asyncio.sleep(0.01)
        partition.append_marker(server.turn, 7, 0, commit=True, coordinator_epoch=0)
        assert acquired(await one.fetched()) == [(4, 4, 1)]

    with_server(steps)


@pytest.mark.parametrize(
    ("reset", "expected"), [("earliest", 0), ("latest", 3), ("by_duration:PT1M", 1), ("by_duration:P1D", 0)]
)
def test_where_a_new_group_begins(reset: str, expected: int) -> None:
    clock = ManualClock()

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server, share_auto_offset_reset=reset)
        for _ in range(3):
            clock.advance(50)
            await append_plain(server, b"x")
        clock.advance(5)
        await joined(server, connect)
        topic_id = server.node.catalogue.topics["t"].id.bytes
        found = server.node.share_delivery.describe("g", (topic_id, 0))
        assert found is not None
        assert (found.start_offset, found.lag) == (expected, 3 - expected)

    with_server(steps, clock=clock)


def test_one_session_too_many_is_told_after_its_waiting_time() -> None:
    config = dataclasses.replace(BrokerConfig(), group_share_max_share_sessions=1)

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        one = await joined(server, connect)
        assert (
            await member(server, connect, "two").fetches(0)
        ).error_code.value == SHARE_SESSION_LIMIT_REACHED
        late = await member(server, connect, "three").fetches(0, wait=20)
        assert late.error_code.value == SHARE_SESSION_LIMIT_REACHED
        again = ShareMember(one.peer, one.topic)
        again.sent = one.sent
        assert (await again.fetches(0)).error_code.value == 0, "its own session is replaced"

    with_server(steps, config=config)


def test_an_acknowledgement_that_could_not_be_saved_is_not_confirmed(tmp_path: Path) -> None:
    config = dataclasses.replace(BrokerConfig(), data=str(tmp_path / "data"))

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b")
        one = await joined(server, connect)
        await one.fetches()
        states, save = server.node.catalogue.share_states, server.node.catalogue.share_states.save

        def failing(_: Any) -> Any:
            from millstream.core.errors import CatalogueFailed

            raise CatalogueFailed("the disk is full")

        states.save = failing  # type: ignore[method-assign]
        failed = await one.acknowledges({0: [(0, 0, [ACCEPT])]})
        assert partition_of(failed).error_code.value == KAFKA_STORAGE_ERROR
        states.save = save  # type: ignore[method-assign]
        fine = await one.acknowledges({0: [(1, 1, [ACCEPT])]})
        assert partition_of(fine).error_code.value == 0
        assert next(iter(states.of("g").values())).start_offset == 2, "the next save is of all of it"

    with_server(steps, config=config)


def test_a_restart_goes_on_with_what_was_acknowledged(tmp_path: Path) -> None:
    config = dataclasses.replace(BrokerConfig(), data=str(tmp_path / "data"))

    async def before(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c", b"d")
        one = await joined(server, connect)
        await one.fetches()
        await one.acknowledges({0: [(0, 2, [RELEASE, ACCEPT, REJECT])]})

    async def after(server: Server, connect: Connect) -> None:
        server.node.coordinator.share.create("g")  # it had no members, so nothing is kept of it
        one = await joined(server, connect)
        assert acquired(await one.fetches()) == [(0, 0, 2), (3, 3, 2)], (
            "the shutdown gave back 3, once delivered"
        )

    with_server(before, config=config)
    with_server(after, config=config, topics={})


def test_large_batches_stay_in_their_file(tmp_path: Path) -> None:
    config = dataclasses.replace(BrokerConfig(), data=str(tmp_path / "data"))

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        value = bytes(200_000)
        await append_plain(server, value)
        await append_plain(server, value)
        one = await joined(server, connect)
        response = await one.fetches()
        assert acquired(response) == [(0, 1, 1)]
        assert [batch.base_offset for _, batch in batches(partition_of(response).records)] == [0, 1]

    with_server(steps, config=config)
    assert LogSlice(None, 0, 0).peek(0, 10) == b""


def test_records_that_are_deleted_are_finished_and_a_late_acknowledgement_is_no_error() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c")
        one = await joined(server, connect)
        await one.fetches()
        partition = server.node.topics.partition("t", 0)
        assert partition is not None
        partition.log.delete_records(2)
        found = server.node.share_delivery.describe("g", (one.topic.bytes, 0))
        assert found is not None
        assert (found.start_offset, found.lag) == (2, 1)
        late = await one.acknowledges({0: [(0, 2, [ACCEPT])]})
        assert partition_of(late).error_code.value == 0
        assert acquired(await one.fetches()) == []

    with_server(steps)


def test_where_a_group_begins_is_moved_and_forgotten() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c")
        one = await joined(server, connect)
        await one.fetches()
        await one.acknowledges({0: [(0, 2, [ACCEPT])]}, epoch=-1)
        delivery, place = server.node.share_delivery, (one.topic.bytes, 0)
        await delivery.alter("g", {place: 1})
        two = await joined(server, connect, "two")
        assert acquired(await two.fetches()) == [(1, 2, 1)]
        two.peer.close()
        await delivery.delete("g", [place])
        assert delivery.describe("g", place) == (-1, 0, -1)
        three = await joined(server, connect, "three")
        assert acquired(await three.fetches()) == [(0, 2, 1)]
        three.peer.close()
        assert await server.node.coordinator.directory.delete("g") == 0
        assert not delivery.of_group("g")
        assert not server.node.catalogue.share_states.of("g")

    with_server(steps)


def test_many_acknowledgements_share_a_save() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        members = [await joined(server, connect, f"m{number}") for number in range(10)]
        await append_plain(server, *(b"%d" % number for number in range(10)))
        for one in members:
            assert len(acquired(await one.fetches(share_acquire_mode=1, max_records=1))) == 1
        saves = 0
        states, save = server.node.catalogue.share_states, server.node.catalogue.share_states.save

        def counting(changed: Any) -> Any:
            nonlocal saves
            saves += 1
            return save(changed)

        states.save = counting  # type: ignore[method-assign]
        for number, one in enumerate(members):
            one.peer.give(one.acknowledge({0: [(number, number, [ACCEPT])]}))
        for one in members:
            await one.peer.answers(one.sent)
        assert saves <= 2
        assert states.of("g")[members[0].topic.bytes, 0].start_offset == 10

    with_server(steps)


def test_metrics_say_what_happened() -> None:
    clock = ManualClock()

    async def steps(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b", b"c")
        one = await joined(server, connect)
        await one.fetches()
        await one.acknowledges({0: [(0, 1, [ACCEPT, REJECT])]})
        text = {
            (sample.name, *sample.labels.values()): sample.value
            for family in server.collector.collect()
            for sample in family.samples
            if sample.name.startswith("millstream_share")
        }
        assert text["millstream_share_given_out_records_total",] == 3
        assert text["millstream_share_acknowledged_records_total", "accept"] == 1
        assert text["millstream_share_acknowledged_records_total", "reject"] == 1
        assert text["millstream_share_group_lag_records", "g", "t", "0"] == 1
        assert text["millstream_share_group_acquired_records", "g", "t", "0"] == 1
        assert text["millstream_share_sessions",] == 1
        clock.advance(31)
        server.node.share_delivery.tick(clock.monotonic())
        assert server.node.share_delivery.counts.timed_out == 1

    with_server(steps, clock=clock)


def test_a_log_that_lost_its_end_gives_its_new_records_to_somebody(tmp_path: Path) -> None:
    """After a power failure the state may know of records that the log has lost. Their offsets are used
    again, also before the group asks for them."""
    config = dataclasses.replace(BrokerConfig(), data=str(tmp_path / "data"))

    async def before(server: Server, connect: Connect) -> None:
        await begin(server)
        await append_plain(server, b"a", b"b")
        lost = SharePartition(0, GroupConfig())
        lost.acquire("m", 0, [LogBatch(0, 0), LogBatch(1, 9)], 0.0, max_records=10)
        lost.acknowledge("m", [Acknowledgement(1, 9, bytes((ACCEPT,)))], 0.0)
        key = ("g", server.node.catalogue.topics["t"].id.bytes, 0)
        await server.node.catalogue.share_states.save({key: SavedShare(0, to_bytes(lost))})

    async def after(server: Server, connect: Connect) -> None:
        server.node.coordinator.share.create("g")
        await append_plain(server, b"c", b"d")
        one = await joined(server, connect)
        assert acquired(await one.fetches()) == [(0, 0, 1), (2, 3, 1)]

    with_server(before, config=config)
    with_server(after, config=config, topics={})
