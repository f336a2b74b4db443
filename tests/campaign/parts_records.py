"""Parts made of topics of numbered records: who writes and reads them, and by which rule records leave."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from signal import SIGINT

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.campaign import bounds, coverage, exported, ledger, lookups
from tests.campaign.clients_common import IMPATIENT
from tests.campaign.coverage import Sighting
from tests.campaign.findings import Finding
from tests.campaign.journal import Notes
from tests.campaign.ledger import Content, Place
from tests.campaign.parts import Part, World, make_topic, remove_topic, trim_topic
from tests.campaign.processes import Client, client
from tests.campaign.reading import CantRead, read_topic, topic_bounds
from tests.support.serve import MILLSTREAM
from tests.support.sizes import bytes_of
from tests.support.waiting import wait_for

KEPT, TRIMMED, SIZED, AGED, RING, VOLATILE = "kept", "trimmed", "sized", "aged", "ring", "volatile"
CATCHING_UP = 240.0  # seconds for groups to process everything once faults have stopped
STOPPED_AT_MOST_MS = 12_000  # a client that was stopped may note an acknowledgement this much later


@dataclass
class Topic:
    name: str
    partitions: int
    config: dict[str, str]
    rule: str = KEPT
    rates: tuple[int, ...] = (0,)
    """One producer each; 0: as fast as it can."""
    kafka_python: int = 0
    followers: int = 0
    replayers: int = 0
    askers: int = 0
    """Clients that look up by time."""
    groups: dict[str, str] = field(default_factory=dict)
    """Name and kind of each group; two members each."""
    exporters: bool = False
    starts: list[int] = field(default_factory=list)
    """Where its partitions start when the round begins."""
    bases: list[int] = field(default_factory=list)
    """Where they end at that time: there the round's records begin."""

    @property
    def idempotent(self) -> bool:
        return self.rule != VOLATILE

    @property
    def places(self) -> list[Place]:
        return [(self.name, number) for number in range(self.partitions)]


class RecordsPart(Part):
    """``topics`` makes the topics of a round. Topics with one name are the same topic in all rounds."""

    def __init__(self, name: str, topics: Callable[[Random, bool], list[Topic]]) -> None:
        super().__init__()
        self.name = name
        self._make = topics
        self._topics: list[Topic] = []
        self._known: set[str] = set()

    def prepare(self, world: World) -> None:
        chance = world.chance(self.name)
        self._topics = self._make(chance, world.quick)
        for topic in self._topics:
            again = chance.choice(("made again", "trimmed", "kept"))
            if topic.name in self._known and again == "made again":
                remove_topic(world.address, topic.name)
                self._known.discard(topic.name)
            if topic.name not in self._known:
                make_topic(world, topic.name, topic.partitions, topic.config)
                self._known.add(topic.name)
            elif again == "trimmed":
                ends = [end for _, end in topic_bounds(world.address, topic.name, topic.partitions)]
                trim_topic(world, topic.name, ends)
            found = topic_bounds(world.address, topic.name, topic.partitions)
            topic.starts, topic.bases = [start for start, _ in found], [end for _, end in found]

    def writers(self, world: World) -> list[Client]:
        return [each for topic in self._topics for each in self._writers_of(world, topic)]

    def _writers_of(self, world: World, topic: Topic) -> Iterator[Client]:
        options = {"topic": topic.name, "partitions": topic.partitions, "seed": world.seed}
        for index, rate in enumerate(topic.rates):
            producing = {"rate": rate, "idempotent": topic.idempotent, **options}
            yield self._client(world, f"{topic.name}-p{index}", "produce", **producing)
        for index in range(topic.kafka_python):
            yield self._client(world, f"{topic.name}-k{index}", "produce-with-kafka-python", **options)
        if topic.rule == TRIMMED:
            yield self._client(world, f"{topic.name}-trimmer", "trim", **options)

    def others(self, world: World) -> list[Client]:
        return [each for topic in self._topics for each in self._readers_of(world, topic)]

    def _readers_of(self, world: World, topic: Topic) -> Iterator[Client]:
        options = {"topic": topic.name, "partitions": topic.partitions, "seed": world.seed}
        following = {"starts": topic.starts, **options}
        for index in range(topic.followers):
            yield self._client(world, f"{topic.name}-f{index}", "follow", **following)
        for index in range(topic.replayers):
            yield self._client(world, f"{topic.name}-r{index}", "follow", again=True, **following)
        for index in range(topic.askers):
            yield self._client(world, f"{topic.name}-t{index}", "look-up", **options)
        for group, kind in topic.groups.items():
            for index in range(2):
                yield self._client(world, f"{group}-m{index}", "member", group=group, kind=kind, **options)
        if topic.exporters:
            yield self._exporter(world, topic)

    def _client(self, world: World, name: str, role: str, **options: object) -> Client:
        # The name of a life is in its records, so it must differ from round to round.
        return client(f"r{world.number}-{name}", world.journals(self.name), world.address, role, **options)

    def _export_command(self, world: World, topic: Topic) -> list[str]:
        to = world.journals(self.name) / f"export-{topic.name}"
        return [
            MILLSTREAM,
            "topic",
            "export",
            topic.name,
            "--to",
            str(to),
            "--size",
            "300kB",
            "-b",
            world.address,
        ]

    def _exporter(self, world: World, topic: Topic) -> Client:
        command = [*self._export_command(world, topic), "--follow", "--every", "2s"]
        # Code 1: the broker was away for too long. The message about that must not be a traceback.
        return Client(
            f"{topic.name}-export",
            world.journals(self.name),
            lambda _: command,
            may_end_with=(1, 130),
            ends_by=SIGINT,
        )

    def watched(self) -> tuple[dict[str, int], list[str]]:
        lasting = [topic for topic in self._topics if topic.rule != VOLATILE]
        groups = [group for topic in lasting for group in topic.groups]
        return {topic.name: topic.partitions for topic in lasting}, groups

    def sample(self, world: World) -> Iterator[Finding]:
        for topic in self._topics:
            if topic.rule == RING:
                limit = int(topic.config["millstream.overload.bytes"])
                for place in topic.places:
                    size = bytes_of(world.data / f"{place[0]}-{place[1]}")
                    yield from bounds.check_size(self.name, place, size, 0, limit, something_left=False)

    def settle(self, world: World, others: list[Client]) -> Iterator[Finding]:
        for topic in self._topics:
            if not topic.groups:
                continue
            ends = [end for _, end in topic_bounds(world.address, topic.name, topic.partitions)]
            for group in topic.groups:
                wanted = {(topic.name, number): end for number, end in enumerate(ends) if end}
                yield from self._caught_up(world, group, wanted, others)

    def _caught_up(
        self, world: World, group: str, wanted: dict[Place, int], others: list[Client]
    ) -> Iterator[Finding]:
        deadline = time.monotonic() + CATCHING_UP
        committed: dict[Place, int] = {}
        while time.monotonic() < deadline:
            committed = committed_offsets(world.address, group, list(wanted))
            if all(committed.get(place, 0) >= end for place, end in wanted.items()):
                return
            for each in others:
                each.revive()
            time.sleep(0.2)
        behind = {f"{t}-{p}": (committed.get((t, p), 0), end) for (t, p), end in wanted.items()}
        yield Finding(self.name, "stuck", f"group {group} did not catch up: committed and end {behind}")

    def check(self, world: World) -> Iterator[Finding]:
        journals = world.journals(self.name)
        notes = Notes.of(journals.glob("*.jsonl"))
        self.tallies["sent"] += notes.accounts.sent
        self.tallies["acknowledged"] += notes.accounts.acknowledged
        self.tallies.update(notes.tallies)
        for wrong in notes.wrong:
            yield Finding(self.name, "client", wrong)
        for topic in self._topics:
            try:
                contents = read_topic(world.address, topic.name, topic.partitions)
            except (CantRead, KafkaException) as error:
                yield Finding(self.name, "unreadable", str(error))
                continue
            self.tallies["checked"] += sum(len(content.offsets) for content in contents.values())
            yield from self._check_topic(world, topic, contents, notes)

    def _check_topic(
        self, world: World, topic: Topic, contents: dict[Place, Content], notes: Notes
    ) -> Iterator[Finding]:
        for place, start, base in zip(topic.places, topic.starts, topic.bases, strict=True):
            whole, lives = contents[place], notes.accounts.by_place[place]
            ours = whole.since(base)
            if topic.rule == VOLATILE:
                after = world.broker.started_at_ms + STOPPED_AT_MOST_MS
                fresh = [run[1:5] for run in notes.fresh if run[0] == place and run[5] > after]
                yield from ledger.check_volatile(self.name, place, whole, fresh)
                continue
            yield from ledger.check(self.name, place, ours, lives, base)
            yield from coverage.check_digests(self.name, place, whole, notes.digests[place])
            yield from lookups.check(self.name, place, whole, notes.look_ups[place])
            for group in topic.groups:
                committed = committed_offsets(world.address, group, [place]).get(place, 0)
                ranges = notes.processed[group, place]
                yield from coverage.check_processed(
                    self.name, group, place, ranges, ours.start, ours.end, committed
                )
            yield from self._check_rule(world, topic, place, start, whole, notes)
        if topic.exporters:
            yield from self._check_export(world, topic, contents)

    def _check_rule(
        self, world: World, topic: Topic, place: Place, before: int, content: Content, notes: Notes
    ) -> Iterator[Finding]:
        lives = notes.accounts.by_place[place]
        directory = world.data / f"{place[0]}-{place[1]}"
        if topic.rule == KEPT:
            yield from ledger.check_kept(self.name, place, content, lives, before)
        elif topic.rule == TRIMMED:
            asked, done = notes.trims_asked[place], notes.trims_done[place]
            yield from bounds.check_trims(self.name, place, content.start, before, asked, done)
        elif topic.rule == SIZED:
            least = int(topic.config["retention.bytes"])
            most = least + int(topic.config["segment.bytes"])
            went = self._within(lambda: bytes_of(directory, "*.log") <= most)
            size = bytes_of(directory, "*.log")
            bound = most if not went else max(most, size)
            yield from bounds.check_size(
                self.name, place, size, least, bound, something_left=content.start > before
            )
        elif topic.rule == RING:
            limit = int(topic.config["millstream.overload.bytes"])
            yield from bounds.check_size(
                self.name,
                place,
                bytes_of(directory),
                limit * 4 // 5,
                limit,
                something_left=content.start > before,
            )
        elif topic.rule == AGED:
            yield from self._check_age(world, topic, place, before, notes)

    def _check_age(
        self, world: World, topic: Topic, place: Place, before: int, notes: Notes
    ) -> Iterator[Finding]:
        starts = [seen for seen in world.sightings.get(place, []) if seen.name == "start"]
        now = topic_bounds(world.address, topic.name, topic.partitions)[place[1]][0]
        starts.append(Sighting("start", place, now, int(time.time() * 1000)))
        newest = sorted(notes.acknowledged_at[place])
        retention_ms = int(topic.config["retention.ms"])
        yield from bounds.check_age(self.name, place, starts, newest, retention_ms, before)

        def empty() -> bool:
            start, end = topic_bounds(world.address, topic.name, topic.partitions)[place[1]]
            return start == end

        if not self._within(empty):
            detail = f"{place[0]}-{place[1]} still holds records long after {retention_ms} ms"
            yield Finding(self.name, "left too late", detail)

    @staticmethod
    def _within(condition: Callable[[], bool], seconds: float = 60) -> bool:
        try:
            return wait_for(condition, timeout=seconds, every=0.2)
        except AssertionError:
            return False

    def _check_export(self, world: World, topic: Topic, contents: dict[Place, Content]) -> Iterator[Finding]:
        command = [*self._export_command(world, topic), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            yield Finding(self.name, "export", f"exit code {done.returncode}: {done.stderr[-1000:]}")
        directory = world.journals(self.name) / f"export-{topic.name}"
        lines, wrong = exported.read_export(self.name, directory, topic.name)
        self.tallies["exported"] += sum(map(len, lines.values()))
        yield from wrong
        yield from exported.check(self.name, topic.name, lines, contents)


def committed_offsets(address: str, group: str, places: list[Place]) -> dict[Place, int]:
    reader = Consumer({"bootstrap.servers": address, "group.id": group, **IMPATIENT})
    try:
        found = reader.committed([TopicPartition(*place) for place in places], 60)
    except KafkaException:
        return {}
    finally:
        reader.close()
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
