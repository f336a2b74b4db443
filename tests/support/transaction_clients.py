"""Producers for ``transaction_world``, which run transactions as client libraries do, and record the outcome.

Now and then, a producer gives up in the middle of a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from millstream.broker.transactions.transaction import NOBODY, ProducerIdentity
from tests.support.transaction_world import FENCED, PARTITIONS, TIMEOUT_MS, Copies, Refused, Tried, World

FIRST_PROTOCOL, SECOND_PROTOCOL = 9, 12  # the version of Produce that stands for each transaction protocol


class Producer:
    """A transactional producer. Others may use the same transactional id."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.world = world
        self.name = name
        self.version = version
        self.identity = NOBODY
        self.sequences: dict[tuple[ProducerIdentity, int], int] = {}

    @property
    def second_protocol(self) -> bool:
        return self.version == SECOND_PROTOCOL

    @property
    def copies(self) -> Copies:
        return Copies.LATE if self.second_protocol else Copies.PROMPT

    async def run(self, transactions: int) -> None:
        world = self.world
        for _ in range(transactions):
            try:
                if self.identity == NOBODY or world.chance.random() < 0.1:
                    await self.init()
                if not await self.transaction():
                    self.identity = NOBODY  # it crashed, and may or may not come back
            except Refused as refused:
                if refused.code not in FENCED:
                    raise
                self.identity = NOBODY
            if not world.is_working:
                return

    async def init(self, *, two_phase: bool = False, keep: bool = False) -> ProducerIdentity:
        """Initialise the producer, and return the identity under which a kept transaction is open."""
        world = self.world
        given = await world.call(
            lambda world: world.coordinator.init(self.name, TIMEOUT_MS, two_phase=two_phase, keep=keep),
            Copies.NONE if two_phase else Copies.LATE,  # a copy would abort the prepared transaction
        )
        self.identity, kept = given
        self.given()
        assert isinstance(kept, ProducerIdentity)
        return kept

    def given(self) -> None:
        ends = [partition.log.end_offset for partition in self.world.partitions]
        self.world.given.append((self.identity, self.name, ends))

    async def transaction(self) -> bool:
        """Run one transaction. True if it was ended, False if the producer crashed."""
        chance = self.world.chance
        tried = self.begin()
        if not await self.fill(tried) or chance.random() < 0.1:
            return False
        if not tried.records and not tried.has_offset and not self.second_protocol:
            return True  # client libraries do not end a transaction that never began on the broker
        commit = chance.random() < 0.7 and bool(tried.records or tried.has_offset)
        if chance.random() < 0.15:
            await self.stall()
        await self.end(tried, commit)
        return True

    def begin(self) -> Tried:
        tried = Tried(len(self.world.tried), self.name)
        self.world.tried.append(tried)
        return tried

    async def fill(self, tried: Tried) -> bool:
        chance = self.world.chance
        for number in range(chance.randrange(4)):
            index = chance.randrange(PARTITIONS)
            if not self.second_protocol:
                await self.add_partitions([index])
            value = f"{tried.number}/{number}".encode()
            await self.produce(index, value)
            tried.records.append((index, value))
            if chance.random() < 0.04:
                return False
        if chance.random() < 0.5:
            await self.add_offset(tried)
        return True

    async def add_partitions(self, indexes: Sequence[int]) -> None:
        name, identity = self.name, self.identity
        await self.world.call(
            lambda world: world.coordinator.add_partitions(
                name, identity, [world.partitions[index] for index in indexes]
            ),
            self.copies,
        )

    async def produce(self, index: int, value: bytes) -> None:
        name, version, identity = self.name, self.version, self.identity
        sequence = self.sequences.get((identity, index), 0)
        await self.world.call(
            lambda world: world.produce(name, version, identity, index, sequence, value),
            self.copies,
        )
        self.sequences[identity, index] = sequence + 1

    async def add_offset(self, tried: Tried) -> None:
        name, identity, implicit = self.name, self.identity, self.second_protocol
        if not implicit:
            await self.world.call(
                lambda world: world.coordinator.add_group(name, identity, "g"), Copies.PROMPT
            )
        await self.world.call(
            lambda world: world.coordinator.add_offsets(
                name, identity, "g", [world.offset(tried.number)], implicit=implicit
            ),
            self.copies,
        )
        tried.has_offset = True

    async def end(self, tried: Tried, commit: bool) -> None:
        name, identity, second_protocol = self.name, self.identity, self.second_protocol
        tried.asked = commit
        self.identity = await self.world.call(
            lambda world: world.coordinator.end(
                name, identity, commit=commit, second_protocol=second_protocol
            ),
            self.copies,
        )
        tried.answered = True
        if self.identity != identity:
            self.given()

    async def stall(self) -> None:
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.world.stalled.append(waits)
        await waits


class TwoPhaseProducer(Producer):
    """A producer whose transactions are decided by another system. Whatever happens to the producer, it comes
    back and carries out that decision. Nobody else uses its transactional id.
    """

    async def run(self, transactions: int) -> None:
        for _ in range(transactions):
            if self.identity == NOBODY:
                await self.init(two_phase=True)
            prepared = self.identity
            tried = self.begin()
            try:
                filled = await self.fill(tried)
            except Refused as refused:
                raise AssertionError(
                    "nobody else has this id, and its transactions have no time-out"
                ) from refused
            if not filled or not (tried.records or tried.has_offset):
                self.identity = NOBODY
                continue
            await self.decide(tried, prepared)
            if not self.world.is_working:
                return

    async def decide(self, tried: Tried, prepared: ProducerIdentity) -> None:
        chance = self.world.chance
        commit = chance.random() < 0.6
        sent = chance.random() < 0.5
        if sent:
            # The end is requested, and the client dies before the response.
            ending = asyncio.get_running_loop().create_task(self.end(tried, commit))
            await asyncio.wait([ending], timeout=0)
            if chance.random() < 0.4:
                await ending
                return
            ending.cancel()
        tried.asked = commit
        while True:
            kept = await self.init(two_phase=True, keep=True)
            if kept == NOBODY:
                assert sent, "a prepared transaction is gone, and nobody ended it"
                break
            assert kept == prepared, f"{kept} was kept, {prepared} had prepared"
            if chance.random() < 0.3:
                continue  # it died again: repeat
            try:
                await self.end(tried, commit)
            except Refused as refused:
                # The end that was sent before the client died, or a copy of it, arrived after all.
                if refused.code not in FENCED | {48}:
                    raise
                continue
            break
        tried.answered = True
        self.identity = NOBODY
