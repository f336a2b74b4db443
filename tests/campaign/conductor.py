"""Run a campaign: round after round of work and faults, with checks after each round and at the end."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.campaign.all_parts import make_parts
from tests.campaign.broker import BrokerUnderTest
from tests.campaign.clients_common import IMPATIENT
from tests.campaign.coverage import check_growing
from tests.campaign.faults import Faults
from tests.campaign.findings import Finding, bounded
from tests.campaign.journal import Notes
from tests.campaign.parts import Part, World, remove_topic
from tests.campaign.processes import Client, client
from tests.campaign.schedule import FILL_DISK, Pace, Round, plan_round
from tests.support.serve import MILLSTREAM
from tests.support.small_disk import Ballast
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

MEMORY_KB = 1_200_000
LEFT_OVER = ("-stray", "-delete", "-cut", ".deleted", ".cleaned", ".swap", ".tmp")
REMOVING = (
    150.0  # seconds until a deleted topic's files must be gone: file.delete.delay.ms is a minute by default
)


@dataclass
class Options:
    seed: int
    parts: list[str]
    faults: list[str]
    seconds: float = math.inf
    """The campaign ends after this time, or after ``rounds``."""
    rounds: int = sys.maxsize
    pace: Pace = field(default_factory=Pace)
    quick: bool = False
    go_on: bool = False
    """Continue with further rounds after findings."""


class Conductor:
    def __init__(
        self,
        options: Options,
        scratch: Path,
        disk: Path | None,
        say: Callable[[str], None],
        status: Callable[[str], None],
    ) -> None:
        self._options, self._scratch = options, scratch
        self.say, self._status = say, status
        self.data = (disk or scratch) / "data"
        self._archive = scratch / "archive"
        self.broker = BrokerUnderTest(self.data, self._archive)
        ballast = Ballast(disk / "ballast") if disk is not None else None
        self.faults = Faults(self.broker, self._archive, ballast, say)
        if ballast is None:
            options.faults = [fault for fault in options.faults if fault != FILL_DISK]
        self.parts = make_parts(options.parts)
        self.findings: list[Finding] = []
        self.rounds = 0
        self.is_interrupted = False
        self._clients: list[Client] = []

    def run(self) -> list[Finding]:
        deadline = time.monotonic() + self._options.seconds
        try:
            self.broker.start()
            self._mark_archive()
            while self.rounds < self._options.rounds and time.monotonic() < deadline:
                plan = plan_round(
                    self._options.seed,
                    self.rounds,
                    self._options.parts,
                    self._options.faults,
                    self._options.pace,
                )
                self._run_round(plan, min(plan.seconds, max(deadline - time.monotonic(), 5)))
                self.rounds += 1
                if self.is_interrupted or (self.findings and not self._options.go_on):
                    break
            if not self.findings:
                self._note(self._ending())
        except AssertionError as error:
            self._note([Finding("campaign", "can't go on", str(error))])
        except KeyboardInterrupt:
            self.is_interrupted = True
            self._note([Finding("campaign", "interrupted", "before the checks were done")])
        finally:
            self.faults.end_all()
            for each in self._clients:
                each.end_now()
            self.broker.end()
        return self.findings

    def _mark_archive(self) -> None:
        """Until the broker has left its mark, an archive that is away can't be told from an empty one."""
        create_topic(self.broker.address, "marking-the-archive", 1, {"remote.storage.enable": "true"})
        wait_for(lambda: list(self._archive.glob("*/*.json")), what="the broker marks its archive")

    def _note(self, findings: Iterator[Finding] | list[Finding]) -> None:
        for finding in bounded(findings):
            if finding not in self.findings:
                self.findings.append(finding)
                self.say(f"FOUND {finding}")

    # A round

    def _run_round(self, plan: Round, seconds: float) -> None:
        self.say(f"round {plan.number}: {seconds:.0f} s of {', '.join(plan.parts)}")
        directory = self._scratch / f"round-{plan.number:03}"
        directory.mkdir()
        world = World(
            plan.number,
            self._options.seed,
            self.broker,
            self.data,
            self._archive,
            directory,
            quick=self._options.quick,
        )
        parts = [self.parts[name] for name in plan.parts]
        try:
            for part in parts:
                part.prepare(world)
        except KafkaException as error:
            self._note([Finding(part.name, "can't prepare", str(error))])
            return
        writers = {part.name: part.writers(world) for part in parts}
        others = {part.name: part.others(world) for part in parts}
        watcher = self._watcher(world, parts)
        self._clients = [each for group in (*writers.values(), *others.values()) for each in group]
        for each in (*self._clients, watcher):
            each.start()
        self._clients.append(watcher)
        try:
            self._strike(plan, seconds, parts, world)
        except KeyboardInterrupt:
            self.is_interrupted = True
            self.say("interrupted: the round ends here, and is checked; once more to leave at once")
        self._finish(world, parts, writers, others, watcher)
        self._note(self._checks(world, parts))
        if plan.restart_and_check and not self.findings:
            self._note(self._check_directory())
        if not self.findings:
            shutil.rmtree(directory)

    def _watcher(self, world: World, parts: list[Part]) -> Client:
        topics: dict[str, int] = {}
        groups: list[str] = []
        for part in parts:
            more, members = part.watched()
            topics |= more
            groups += members
        journals = world.journals("watcher")
        return client("watcher", journals, world.address, "watch", mortal=False, topics=topics, groups=groups)

    def _strike(self, plan: Round, seconds: float, parts: list[Part], world: World) -> None:
        began = looked = time.monotonic()
        due = [fault for fault in plan.faults if fault.at < seconds - 1]
        while (now := time.monotonic() - began) < seconds:
            self.faults.end_due(now)
            if due and due[0].at <= now:
                self._note(self.faults.strike(due.pop(0), now, self._clients))
            if time.monotonic() - looked > 0.5:
                looked = time.monotonic()
                self._look(parts, world)
                self._tell(plan, now, seconds)
                if self.broker.died():
                    self.broker.is_up = False
                    self._note([Finding("broker", "died", "the process ended by itself")])
                    return
            time.sleep(0.02)

    def _look(self, parts: list[Part], world: World) -> None:
        self.broker.sample_memory()
        self._note(self.broker.new_lines())
        for part in parts:
            self._note(part.sample(world))
        for each in self._clients:
            if not each.is_stopped:
                each.revive()

    def _tell(self, plan: Round, now: float, seconds: float) -> None:
        total = sum(self.faults.counts.values())
        self._status(
            f"round {plan.number} {now:3.0f}/{seconds:.0f} s, {len(self._clients)} clients, {total} faults, "
            f"{self.broker.most_kb // 1024} MB, {len(self.findings)} findings"
        )

    def _finish(
        self,
        world: World,
        parts: list[Part],
        writers: dict[str, list[Client]],
        others: dict[str, list[Client]],
        watcher: Client,
    ) -> None:
        """Faults are over: all clients finish what is in progress."""
        self.faults.end_all()
        if not self.broker.is_up:
            self._note(self.faults.start_broker())
        self._status("faults are over; producers finish")
        for each in self._clients:
            each.resume()
            each.revive()
        self._end([each for group in writers.values() for each in group])
        for part in parts:
            self._status(f"waiting for the readers of {part.name}")
            self._note(part.settle(world, others[part.name]))
        self._end([each for group in others.values() for each in group])
        self._end([watcher])
        for each in self._clients:
            self._note([Finding(each.name, "client", wrong) for wrong in each.wrong])
        self._clients = []

    @staticmethod
    def _end(clients: list[Client]) -> None:
        for each in clients:
            each.ask_to_finish()
        for each in clients:
            each.finish()

    def _checks(self, world: World, parts: list[Part]) -> Iterator[Finding]:
        """Everything that is wrong, once all clients have finished and the broker has nothing to do."""
        yield from self.broker.new_lines()
        seen = Notes.of(world.journals("watcher").glob("*.jsonl")).sightings
        yield from check_growing("watcher", seen)
        by_place = defaultdict(list)
        for sighting in seen:
            by_place[sighting.place].append(sighting)
        world.sightings = dict(by_place)
        for part in parts:
            self._status(f"checking {part.name}")
            yield from part.check(world)
        if (said := self.broker.readiness()) != "ready":
            yield Finding("broker", "not ready", said)
        for line in self.broker.stopped_partitions():
            yield Finding("broker", "stopped partition", line)
        if self.broker.most_kb > MEMORY_KB:
            yield Finding("broker", "memory", f"{self.broker.most_kb:,} kB, of {MEMORY_KB:,}")
        yield from self.broker.new_lines()

    # Between rounds and at the end

    def _check_directory(self) -> Iterator[Finding]:
        """Stop the broker in order, check its directory, start it again."""
        self._status("stopping the broker to check its directory")
        yield from self.broker.stop()
        done = subprocess.run(
            [MILLSTREAM, "log", "check", str(self.data)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode != 0:
            yield Finding("log check", f"exit code {done.returncode}", (done.stdout + done.stderr)[-1500:])
        self.broker.start()

    def _ending(self) -> Iterator[Finding]:
        """Delete all topics, and check that nothing is left of them."""
        yield from self._check_directory()
        self._status("deleting all topics")
        admin = AdminClient({"bootstrap.servers": self.broker.address, **IMPATIENT})
        for topic in admin.list_topics(timeout=60).topics:
            remove_topic(self.broker.address, topic)
        try:
            wait_for(lambda: not list(self._left_over()), timeout=REMOVING, every=0.5)
        except AssertionError:
            some = sorted(self._left_over())
            yield Finding("directory", "left over", f"{len(some)} after all topics were deleted: {some[:10]}")
        yield from self.broker.new_lines()
        yield from self.broker.stop()
        yield from self.broker.new_lines()
        if left := sorted(path.name for path in self.data.iterdir() if path.name.endswith(LEFT_OVER)):
            yield Finding("directory", "left over", f"after the end: {left[:10]}")

    def _left_over(self) -> Iterator[str]:
        for path in self.data.iterdir():
            if path.is_dir() or path.name.endswith(LEFT_OVER):
                yield path.name
        for path in self._archive.resolve().rglob("*"):
            if path.is_file() and path.suffix != ".json":
                yield str(path.relative_to(self._archive.resolve()))
