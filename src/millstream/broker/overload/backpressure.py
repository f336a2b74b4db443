"""Apply ``millstream.overload=backpressure``: which groups count, and which connections wait.

The rules are in ``broker.overload.rules``. This module connects them to groups, logs and connections. A topic
that holds its producers has a ``gate``. Produce requests for it take the slow path, which checks the
gate. Nothing changes for other topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.committed_offset import CommittedOffset
from millstream.broker.overload.rules import ConsumerBacklog, Holding, LagLimits, patience, told_ms
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.core.clock import Clock
from millstream.core.topic_config import TopicConfig

_log = logging.getLogger(__name__)

_TELL_EVERY = 60.0  # seconds between warnings about one topic: holding producers is not an error


class HeldConnection(Protocol):
    """The connection of a producer, which is not read from while its request is held."""

    waiting_since: float | None

    def is_drained(self) -> bool:
        """True if there is nothing more to read from it for now."""

    def stall(self, left: Callable[[], None]) -> None:
        """Read nothing more until ``unstall``. ``left`` is called if the client leaves before that."""

    def unstall(self) -> None: ...


class HeldRequest(Protocol):
    """A Produce request whose response is held back until it is released."""

    @property
    def connection(self) -> HeldConnection: ...

    def released(self, throttle_ms: int) -> None: ...

    def __hash__(self) -> int: ...


IsReading = Callable[[str, str], bool]  # whether a group has live members that may be reading a topic
BacklogKey = tuple[Partition, bool]  # the partition, and whether only its stable records count


class ConsumerGate:
    """What the producers of one topic have to pass. A ``Gate``."""

    def __init__(self, topic: LocalTopic, config: TopicConfig) -> None:
        self.topic = topic
        self.groups = config.millstream_overload_groups
        limits = LagLimits(config.millstream_overload_lag_records, config.millstream_overload_lag_bytes)
        self.lags = [ConsumerBacklog(limits) for _ in topic.partitions]
        self.hold = config.millstream_overload_hold_ms / 1000
        self.slowest_group = ""  # the slowest, in the partition where it is furthest behind
        self.slowest_records = 0
        # Groups that never committed count from where the log ended when they were first seen: (group,
        # partition) -> that end.
        self._begun: dict[tuple[str, int], int] = {}
        self.held = 0  # requests, since the broker started
        self.held_seconds = 0.0
        self.tell_at = 0.0  # when the next warning may be logged

    def is_over(self, partition: Partition, *, transactional: bool) -> bool:
        lag = self.lags[partition.index]
        if transactional:
            return lag.is_stable_over(partition.log.last_stable_offset)
        return lag.is_over(partition.log.end_offset)

    def look(
        self,
        catalogue: Catalogue,
        is_reading: IsReading,
        partitions: Iterable[Partition] | None = None,
    ) -> None:
        """Update how far the groups have come, in all partitions or in the given ones."""
        name = self.topic.name
        offsets = {
            group: catalogue.offsets_of(group).get(name, {})
            for group in self.groups
            if is_reading(group, name)
        }
        if partitions is None:
            self.slowest_group, self.slowest_records = "", 0
            self._begun = {at: offset for at, offset in self._begun.items() if at[0] in offsets}
        for partition in self.topic.partitions if partitions is None else partitions:
            self._look_at(partition, offsets)

    def _look_at(self, partition: Partition, offsets: Mapping[str, Mapping[int, CommittedOffset]]) -> None:
        log, lag, index = partition.log, self.lags[partition.index], partition.index
        slowest: int | None = None
        for group, committed in offsets.items():
            known = committed.get(index)
            begun = known.offset if known else self._begun.setdefault((group, index), log.end_offset)
            at = max(begun, log.log_start_offset)  # records that are deleted will never be read
            if slowest is None or at < slowest:
                slowest = at
            if not self.slowest_group or log.end_offset - at > self.slowest_records:
                self.slowest_group, self.slowest_records = group, max(0, log.end_offset - at)
        if slowest is None or lag.limits.bytes < 0:
            lag.seen(slowest)
        else:
            behind = log.bytes_from(slowest)
            unstable = log.bytes_from(log.last_stable_offset)
            lag.seen(slowest, behind_bytes=behind, stable_bytes=behind - unstable)


class Backpressure:
    """Backpressure for all topics of one broker. Lives on the server's loop."""

    def __init__(self, catalogue: Catalogue, is_reading: IsReading, clock: Clock) -> None:
        self._catalogue = catalogue
        self._is_reading = is_reading
        self._clock = clock
        self._gates: dict[str, ConsumerGate] = {}
        self._holding: Holding[HeldRequest, BacklogKey] = Holding()
        self._closed = False

    def __len__(self) -> int:
        return len(self._holding)

    def configure(self, topic: LocalTopic, config: TopicConfig) -> None:
        """Set up or update a topic's gate: it is now served, has more partitions, or has other settings."""
        if config.millstream_overload != "backpressure":
            self._gates.pop(topic.name, None)
            topic.guard(None)
            return
        gate, before = ConsumerGate(topic, config), self._gates.get(topic.name)
        if before is not None:
            gate.held, gate.held_seconds = before.held, before.held_seconds
        self._gates[topic.name] = gate
        topic.guard(gate)
        gate.look(self._catalogue, self._is_reading)

    def forget_topic(self, topic: LocalTopic) -> None:
        """The topic is not served any more."""
        self._gates.pop(topic.name, None)
        topic.guard(None)

    def gate_of(self, topic: str) -> ConsumerGate | None:
        return self._gates.get(topic)

    def _gate_at(self, topic: LocalTopic) -> ConsumerGate | None:
        """The gate of this very topic: another one may have the name by now."""
        gate = self._gates.get(topic.name)
        return gate if gate is not None and gate.topic is topic else None

    def held_at(self, topic: LocalTopic) -> int:
        """The number of requests that wait for a topic."""
        return sum(
            self._holding.count((partition, transactional))
            for partition in topic.partitions
            for transactional in (False, True)
        )

    def hold_if_behind(
        self,
        request: HeldRequest,
        partitions: Iterable[Partition],
        *,
        transactional: bool,
        timeout_ms: int,
    ) -> bool:
        """Hold a request if consumers are behind. True if it is held. Called after its records were appended
        to these partitions.

        A held request is told when it is released. Until then nothing is read from its connection.
        """
        connection = request.connection
        full: dict[Partition, ConsumerGate] = {}
        for partition in partitions:
            gate = self._gate_at(partition.topic)
            if gate is not None and gate.is_over(partition, transactional=transactional):
                gate.look(self._catalogue, self._is_reading, [partition])
                if gate.is_over(partition, transactional=transactional):
                    full[partition] = gate
        waits = connection.waiting_since is not None
        if self._closed or not full:
            if waits and connection.is_drained():
                connection.waiting_since = None
            return False
        now = self._clock.monotonic()
        most = min(timeout_ms / 2000, *(gate.hold for gate in full.values()))
        drained = waits and connection.is_drained()
        since, deadline = patience(connection.waiting_since, now, drained=drained, most=most)
        connection.waiting_since = since
        if now >= deadline:
            return False
        for gate in {id(gate): gate for gate in full.values()}.values():
            gate.held += 1
            if now >= gate.tell_at:
                gate.tell_at = now + _TELL_EVERY
                _log.warning(
                    "topic %s: producers are held, because group %s is %d records behind",
                    gate.topic.name, gate.slowest_group, gate.slowest_records,
                )  # fmt: skip
        backlogs = frozenset((partition, transactional) for partition in full)
        self._holding.hold(request, backlogs, now, deadline)
        connection.stall(partial(self._holding.forget, request))
        return True

    def committed(self, groups: Iterable[str]) -> None:
        """Called when groups have committed offsets."""
        if self._gates:
            changed = set(groups)
            gates = [gate for gate in self._gates.values() if not changed.isdisjoint(gate.groups)]
            for gate in gates:
                gate.look(self._catalogue, self._is_reading)
            if gates:
                self._release()

    def tick(self) -> None:
        """Let time take effect. Cheap while no topic has a gate."""
        for gate in self._gates.values():
            gate.look(self._catalogue, self._is_reading)
        if self._holding:
            self._release()

    def close(self) -> None:
        """Release every request: the broker is stopping."""
        self._closed = True
        self._release()

    def _is_full(self, backlog: BacklogKey) -> bool:
        partition, transactional = backlog
        if self._closed or not partition.topic.partitions:
            return False
        gate = self._gate_at(partition.topic)
        return gate is not None and gate.is_over(partition, transactional=transactional)

    def _release(self) -> None:
        now = self._clock.monotonic()
        for release in self._holding.release(now, self._is_full):
            for name in {partition.topic.name for partition, _ in release.backlogs}:
                if (gate := self._gates.get(name)) is not None:
                    gate.held_seconds += release.held
            release.token.released(told_ms(release.held, still_full=release.still_full))
            release.token.connection.unstall()
