"""Transactions under thousands of schedules: late, lost and repeated requests, two producers of one id,
time-outs, full disks, and a crash at any step. Whatever happens: an answered commit is complete, one that was
not is complete or absent, never torn across partitions and offsets; nothing aborted is ever seen.

A failure names its seed; ``run_schedule(seed)`` plays it again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator

import pytest

from tests.support.transaction_clients import FIRST_PROTOCOL, SECOND_PROTOCOL, Producer, TwoPhaseProducer
from tests.support.transaction_world import TIMEOUT_MS, Call, Damaged, World, epochs_written, visible

SCHEDULES = int(os.environ.get("SCHEDULES", "2000"))


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    """The faults of a thousand schedules are nothing to read about."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def test_no_schedule_tears_a_transaction() -> None:
    crashes = committed = damaged = 0
    for seed in range(SCHEDULES):
        try:
            world = run_schedule(seed)
        except Damaged:
            damaged += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        else:
            crashes += world.crashes
            committed += sum(tried.asked is True and tried.answered for tried in world.tried)
    print(f"{SCHEDULES} schedules, {crashes} crashes, {committed} transactions committed, {damaged} damaged")
    assert crashes > SCHEDULES / 2
    assert committed > SCHEDULES / 2
    assert damaged < SCHEDULES / 50


def run_schedule(seed: int) -> World:
    return asyncio.run(_schedule(seed))


async def _schedule(seed: int) -> World:
    world = World(seed)
    chance = world.chance
    producers = [
        Producer(world, name, chance.choice((FIRST_PROTOCOL, SECOND_PROTOCOL)))
        for name in ("a", "b")[: chance.randint(1, 2)]
        for _ in range(chance.randint(1, 2))
    ]
    if chance.random() < 0.3:
        producers.append(
            TwoPhaseProducer(world, "two-phase", chance.choice((FIRST_PROTOCOL, SECOND_PROTOCOL)))
        )
    clients = [asyncio.ensure_future(producer.run(chance.randint(1, 5))) for producer in producers]
    try:
        for _ in range(chance.randint(50, 300)):
            await world.step()
            if all(client.done() for client in clients):
                break
        await _settle(world, clients)
        for client in clients:
            client.result()
        _check(world)
        if chance.random() < 0.5:
            await world.crash(power=world.loses_power)
            await _settle(world, clients)
            _check(world)
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        world.db.close()
    return world


async def _settle(world: World, clients: list[asyncio.Future[None]]) -> None:
    """No more faults: everybody comes to an end, and what nobody ends has its time-out."""
    world.is_working = False
    world.disk.room = None
    world.writes_left = None
    for _ in range(20_000):
        await world.step()
        for waits in world.stalled:
            waits.set_result(None)
        world.stalled.clear()
        idle = not (
            world.network or world.replies or world.tasks or world.database.waiting or world.syncer.wanted
        )
        if idle and all(client.done() for client in clients):
            open_ones = world.coordinator.open_transactions()
            if not open_ones and not world.database.unsettled:
                break
            for transaction in open_ones:
                if transaction.is_two_phase:
                    world.network.append(_take_over(transaction.name))
            world.clock.advance(TIMEOUT_MS / 1000)
            world.coordinator.tick()
    else:
        raise AssertionError(f"does not come to an end: {world.coordinator.open_transactions()}")
    for _ in range(5):
        await asyncio.sleep(0)


def _take_over(name: str) -> Call:
    """What an administrator does with a transaction that nobody comes back for."""
    reply = asyncio.get_running_loop().create_future()
    return Call(lambda world: world.coordinator.init(name, TIMEOUT_MS), reply)


def _check(world: World) -> None:
    shown: dict[bytes, list[int]] = {}
    for partition in world.partitions:
        log = partition.log
        assert log.last_stable_offset == log.written_offset == log.end_offset, (
            f"{partition} holds readers back"
        )
        for value in visible(log).values():
            shown.setdefault(value, []).append(partition.index)
    world.look()
    assert set(world.seen.values()) <= set(shown), "what was seen is gone"
    offsets = world.catalogue.offsets_of("g").get("in", {})
    assert not world.catalogue.decisions.has_pending("g")
    for tried in world.tried:
        expected = sorted((value, index) for index, value in tried.records)
        there = sorted(
            (value, index)
            for value, indexes in shown.items()
            if value.split(b"/")[0] == str(tried.number).encode()
            for index in indexes
        )
        what = f"transaction {tried}: {there} is seen, its offset is {offsets.get(tried.number)}"
        if tried.asked is True and tried.answered:
            complete = True
        elif tried.asked is True:
            complete = bool(there) if expected else tried.number in offsets
        else:
            complete = False
        assert there == (expected if complete else []), what
        assert (tried.number in offsets) == (complete and tried.has_offset), what
    _check_fencing(world)


def _check_fencing(world: World) -> None:
    """Once a producer has its identity, nobody with an earlier one of the same id writes."""
    written = [epochs_written(partition.log) for partition in world.partitions]
    for identity, _, ends in world.given:
        for of_partition, end in zip(written, ends, strict=True):
            for offset, producer_id, epoch in of_partition:
                if offset >= end and producer_id == identity.producer_id:
                    assert epoch >= identity.epoch, f"epoch {epoch} wrote at {offset} after {identity}"
