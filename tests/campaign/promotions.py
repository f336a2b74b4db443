"""``python -m tests.campaign.promotions``: promote standbys under idempotent producers, over and over.

Two brokers take turns. In every round the leader is killed with ``kill -9`` (or, with ``--switch``, is told
to hand over). The other one is promoted after a pause such as a person would need, and the old leader comes
back as its standby. Meanwhile one producer of Java's client and one of librdkafka write numbers. For every
round the script says how long each producer had no acknowledgement, from the kill and from the promotion
on. At the end it says what became of every record that was acknowledged.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.idempotent_load import PARTITIONS, JavaLoad, LibrdkafkaLoad, Load, account
from tests.support.pair import status, wait_until_whole
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for

PATIENCE = 130.0  # seconds for an acknowledgement; longer than any default time-out of either client
LONG = 10.0  # this many seconds without an acknowledgement after a promotion are too many
LONG_WITH_STANDBY = 30.0  # the same if nothing is acknowledged before the old leader is back as a standby


@dataclass
class Round:
    """What one promotion did to one producer."""

    number: int
    client: str
    how: str
    before_promotion: float  # seconds from the kill to the promotion
    after_promotion: float  # seconds from the promotion to the first acknowledgement


@dataclass
class Outcome:
    rounds: list[Round] = field(default_factory=list)
    fatal: dict[str, list[str]] = field(default_factory=dict)
    accounts: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)


def make_loads(servers: str, clients: Sequence[str], rate: int) -> list[Load]:
    kinds: dict[str, type[JavaLoad | LibrdkafkaLoad]] = {"java": JavaLoad, "librdkafka": LibrdkafkaLoad}
    return [kinds[client](servers, client, rate=rate) for client in clients]


def run(
    scratch: Path,
    *,
    count: int,
    clients: Sequence[str],
    switch: bool = False,
    seed: int = 0,
    rate: int = 5000,
    pause: float = 5.0,
    min_insync: int = 1,
    say: bool = True,
) -> Outcome:
    """Promote ``count`` times. ``pause`` is the longest wait of the person who promotes."""
    choose = random.Random(seed)
    ports = [free_port(), free_port()]
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    outcome = Outcome()

    def broker(index: int, leader: int | None) -> ServeProcess:
        settings = {} if leader is None else {"follow": f"127.0.0.1:{ports[leader]}"}
        return ServeProcess(scratch / f"broker-{index}", port=ports[index], settings=settings).start()

    brokers = [broker(0, None), broker(1, 0)]
    loads = make_loads(servers, clients, rate)
    try:
        admin = AdminClient({"bootstrap.servers": brokers[0].address})
        config = {"min.insync.replicas": str(min_insync)}
        topics = [NewTopic(load.topic, PARTITIONS, 1, config=config) for load in loads]
        for future in admin.create_topics(topics).values():
            future.result(60)
        wait_until_whole(*brokers)
        for load in loads:
            load.start()
        for number in range(count):
            leading = number % 2
            old, new = brokers[leading], brokers[1 - leading]
            begun = time.monotonic()
            for load in loads:
                _wait_for_acknowledgement(load, begun, "producers write before the next round")
            wait_until_whole(old, new)
            killed = time.monotonic()
            if not switch:
                old.kill()
                time.sleep(choose.uniform(0, pause))
            verdict = CommandLine(new.address).json("promote", "--force")
            promoted = time.monotonic()
            if switch:
                time.sleep(choose.uniform(0, pause))
                old.kill()
            brokers[leading] = broker(leading, 1 - leading)
            if say:
                print(f"round {number:2} {verdict}", flush=True)
            for load in loads:
                seen = _wait_for_acknowledgement(load, promoted, "the new leader's acknowledgements")
                found = Round(
                    number, load.client, "switch" if switch else "kill", promoted - killed, seen - promoted
                )
                outcome.rounds.append(found)
                if say:
                    print(
                        f"round {number:2} {found.how:6} {load.client:10} promoted after "
                        f"{found.before_promotion:5.2f} s, acknowledged {found.after_promotion:5.2f} s later",
                        flush=True,
                    )
        for load in loads:
            load.stop()
        leader = next(broker for broker in brokers if status(broker)["role"] == "leader")
        for load in loads:
            outcome.accounts[load.client] = account(load, leader.address)
            outcome.errors[load.client] = sorted(set(load.failed.values()))
            outcome.fatal[load.client] = load.fatal
    finally:
        for each in brokers:
            if each.process.poll() is None:
                each.kill()
    return outcome


def _wait_for_acknowledgement(load: Load, moment: float, what: str) -> float:
    """The time of the first acknowledgement after ``moment``."""
    seen = wait_for(
        lambda: load.first_acknowledgement_after(moment), timeout=PATIENCE, what=f"{load.client}: {what}"
    )
    assert seen is not None
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.campaign.promotions", description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--clients", nargs="+", default=["java", "librdkafka"])
    parser.add_argument("--switch", action="store_true", help="hand over while the leader runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=int, default=5000, help="records a second of each producer")
    parser.add_argument("--pause", type=float, default=5.0, help="longest wait before a promotion, seconds")
    parser.add_argument("--min-insync", type=int, default=1, help="2: acks=all waits for the standby")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-promotions-") as scratch:
        outcome = run(
            Path(scratch),
            count=options.count,
            clients=options.clients,
            switch=options.switch,
            seed=options.seed,
            rate=options.rate,
            pause=options.pause,
            min_insync=options.min_insync,
        )
    for client in options.clients:
        waits = sorted(each.after_promotion for each in outcome.rounds if each.client == client)
        median = waits[len(waits) // 2]
        print(f"{client}: {len(waits)} promotions, median {median:.2f} s, longest {waits[-1]:.2f} s")
        print(f"{client}: {outcome.accounts.get(client)}; {outcome.errors.get(client)}")
        for error in outcome.fatal.get(client, ()):
            print(f"{client}: FATAL {error}")
    most = LONG if options.min_insync == 1 else LONG_WITH_STANDBY
    long = [each for each in outcome.rounds if each.after_promotion > most]
    found = list(outcome.accounts.values())
    wrong = any(each["duplicates"] or each["disordered"] for each in found)
    wrong |= (options.switch or options.min_insync > 1) and any(each["lost"] for each in found)
    # A producer is told if its acknowledged records are lost; librdkafka's takes no more records after that.
    wrong |= any(
        outcome.fatal[client] and not outcome.accounts[client]["lost"] for client in outcome.accounts
    )
    return 1 if long or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
