"""Logs of network hosts, with planted attacks, from a seed.

Every host sends data to others now and then, users log in, and a backup host sends a lot all day. At each
site, attacks follow one another, each with its own attacker and hosts:

    break-in   a scan, guessed passwords, a login; nothing follows
    direct     the same, and then data leaves that host
    lateral    the same, then one to three further hosts in the same way; data leaves the last host

In between there are events that look like part of an attack and are not: see ``_Site.decoys``. Hosts send
their log a few seconds late, so events arrive out of order. The same seed gives the same events.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.feed import main

TOPIC = "network"
KINDS = ("direct", "lateral", "break-in")
SITES = ("north", "south")
HOSTS = 60  # per site. Attacks take them in turn, so that no host is robbed twice in an hour
DELAY_MS = 6_000  # the longest time until an event is sent; less than the pipeline's lateness
_QUIET_MS = 100_000  # no attacks at the start, so that every host has habits before the first theft
_TOLD_MS = 60_000  # from the end of an attack until the pipeline has reported it
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Attack:
    """A planted attack: the attacker, the hosts, and the stolen bytes, if any."""

    kind: str
    attacker: str
    hosts: tuple[str, ...]  # broken into, in this order
    stolen: int = 0  # bytes, from the last of them

    @property
    def break_ins(self) -> list[tuple[str, str]]:
        """Host and peer of each break-in. The first peer is the attacker, each later one the host before."""
        return list(zip(self.hosts, (self.attacker, *self.hosts), strict=False))


@dataclass(frozen=True, slots=True)
class _Logged:
    """A log entry of a host."""

    at_ms: int
    host: str
    peer: str
    kind: str
    port: int | None = None
    ok: bool | None = None
    bytes: int | None = None


@dataclass(slots=True)
class _Site:
    """A site's hosts, and everything that happens there."""

    name: str
    net: int
    rng: random.Random
    attacks: int = 0
    decoys_made: int = 0
    taken: int = 0  # how many hosts attacks and decoys have taken, in rotation
    strangers: int = 0

    def host(self, number: int) -> str:
        return f"10.{self.net}.0.{number + 10}"

    @property
    def backup(self) -> str:
        return f"10.{self.net}.1.1"

    def fresh(self) -> str:
        """A host on which nothing has been planted for a long time."""
        self.taken += 1
        return self.host(self.taken % HOSTS)

    def stranger(self) -> str:
        """An outside address that has not appeared before."""
        self.strangers += 1
        return f"2001:db8:{self.net}::{self.strangers:x}"

    # ---- ordinary traffic ---------------------------------------------------------------------------

    def transfer(self, host: str, at: int) -> _Logged:
        size = (
            self.rng.randrange(2, 5) * 1_000 * _MB
            if host == self.backup
            else self.rng.randrange(_MB, 5 * _MB)
        )
        peer = self.rng.choice((self.host(self.rng.randrange(HOSTS)), "198.51.100.7"))
        return _Logged(at, host, peer, "transfer", bytes=size)

    def login(self, at: int) -> list[_Logged]:
        """A user logs in, sometimes on the second attempt."""
        host, peer = (self.host(self.rng.randrange(HOSTS)) for _ in range(2))
        tries = 1 + (self.rng.random() < 0.2)
        return [
            _Logged(at + 3_000 * number, host, peer, "login", 22, ok=number == tries - 1)
            for number in range(tries)
        ]

    # ---- attacks ------------------------------------------------------------------------------------

    def attack(self, at: int) -> tuple[Attack, list[_Logged]]:
        kind = KINDS[self.attacks % len(KINDS)]
        self.attacks += 1
        attacker = peer = self.stranger()
        hosts = [self.fresh() for _ in range(1 + (self.rng.randrange(1, 4) if kind == "lateral" else 0))]
        logged: list[_Logged] = []
        for host in hosts:
            logged += self._scan(at, host, peer, self.rng.randrange(12, 20))
            logged += self._guesses(logged[-1].at_ms + 5_000, host, peer, self.rng.randrange(4, 9))
            logged.append(_Logged(logged[-1].at_ms + 3_000, host, peer, "login", 22, ok=True))
            at, peer = logged[-1].at_ms + self.rng.randrange(10_000, 40_000), host
        if kind == "break-in":
            return Attack(kind, attacker, tuple(hosts)), logged
        stolen = self.rng.randrange(200, 900) * _MB
        logged.append(_Logged(at, hosts[-1], self.stranger(), "transfer", bytes=stolen))
        return Attack(kind, attacker, tuple(hosts), stolen), logged

    def _scan(self, at: int, host: str, peer: str, ports: int) -> list[_Logged]:
        chosen = self.rng.sample(range(1, 10_000), ports)
        return [_Logged(at + 700 * n, host, peer, "connect", port, ok=False) for n, port in enumerate(chosen)]

    def _guesses(self, at: int, host: str, peer: str, guesses: int) -> list[_Logged]:
        return [_Logged(at + 2_000 * n, host, peer, "login", 22, ok=False) for n in range(guesses)]

    # ---- lookalikes ---------------------------------------------------------------------------------

    def decoy(self, at: int) -> list[_Logged]:
        made = self.decoys[self.decoys_made % len(self.decoys)]
        self.decoys_made += 1
        return made(self, at, self.fresh(), self.stranger())

    def _forgetful(self, at: int, host: str, peer: str) -> list[_Logged]:
        """Many wrong passwords, but no scan before them."""
        logged = self._guesses(at, host, peer, 8)
        return [*logged, _Logged(logged[-1].at_ms + 2_000, host, peer, "login", 22, ok=True)]

    def _scan_only(self, at: int, host: str, peer: str) -> list[_Logged]:
        return self._scan(at, host, peer, 30)

    def _kept_out(self, at: int, host: str, peer: str) -> list[_Logged]:
        """A scan and guesses, all of them wrong. Soon after, the host happens to send a lot."""
        logged = self._scan(at, host, peer, 15) + self._guesses(at + 15_000, host, peer, 8)
        return [*logged, _Logged(at + 60_000, host, "198.51.100.7", "transfer", bytes=700 * _MB)]

    def _same_ports(self, at: int, host: str, peer: str) -> list[_Logged]:
        """A client that tries a few ports again and again, and then logs in."""
        logged = [_Logged(at + 700 * n, host, peer, "connect", 8000 + n % 9, ok=False) for n in range(30)]
        logged += self._guesses(at + 25_000, host, peer, 5)
        return [*logged, _Logged(at + 40_000, host, peer, "login", 22, ok=True)]

    def _two_peers(self, at: int, host: str, peer: str) -> list[_Logged]:
        """One peer scans, and another mistypes a password."""
        return self._scan(at, host, peer, 15) + self._forgetful(at + 15_000, host, self.stranger())

    def _too_slow(self, at: int, host: str, peer: str) -> list[_Logged]:
        """The right password, but more than ten minutes after the scan."""
        logged = self._scan(at, host, peer, 15) + self._guesses(at + 15_000, host, peer, 6)
        return [*logged, _Logged(at + 620_000, host, peer, "login", 22, ok=True)]

    decoys = (_forgetful, _scan_only, _kept_out, _same_ports, _two_peers, _too_slow)


@dataclass(slots=True)
class Generator:
    """Events from ``start_ms`` on. ``planted`` grows as they are taken."""

    seed: int = 7
    start_ms: int = BEGINNING_MS
    seconds: float | None = None
    planted: list[Attack] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events, in the order in which they are sent."""
        rng = random.Random(self.seed)
        end = None if self.seconds is None else self.start_ms + int(self.seconds * 1000)
        waiting: list[tuple[int, int, Event]] = []  # logged but not sent yet
        agenda: list[tuple[int, int, _Happening]] = []
        number = 0
        for happening in (one for net, name in enumerate(SITES, 1) for one in _agenda(_Site(name, net, rng))):
            number += 1
            first = happening.first_ms + rng.randrange(happening.every_ms)
            heapq.heappush(agenda, (self.start_ms + first, number, happening))
        while True:
            now, _, happening = heapq.heappop(agenda)
            while waiting and waiting[0][0] <= now:
                yield heapq.heappop(waiting)[2]
            if end is not None and now >= end:
                return
            for logged in self._happens(happening, now, end):
                number += 1
                sent = logged.at_ms + rng.randrange(DELAY_MS)
                heapq.heappush(waiting, (sent, number, _event(happening.site.name, logged, sent)))
            number += 1
            pause = rng.randrange(happening.every_ms * 3 // 4, happening.every_ms * 5 // 4)
            heapq.heappush(agenda, (now + pause, number, happening))

    def _happens(self, happening: _Happening, now: int, end: int | None) -> list[_Logged]:
        if happening.make is not None:
            return happening.make(now)
        attack, logged = happening.site.attack(now)
        if end is not None and logged[-1].at_ms + _TOLD_MS > end:
            return []  # the attack would not be over in time
        self.planted.append(attack)
        return logged


@dataclass(frozen=True, slots=True)
class _Happening:
    """An event that recurs at a site. It is an attack if ``make`` is None."""

    site: _Site
    every_ms: int  # on average
    make: Callable[[int], list[_Logged]] | None
    first_ms: int = 0


def _agenda(site: _Site) -> Iterator[_Happening]:
    for host in (*(site.host(number) for number in range(HOSTS)), site.backup):
        yield _Happening(site, 32_000, lambda at, host=host: [site.transfer(host, at)])  # type: ignore[misc]
    yield _Happening(site, 5_000, site.login)
    yield _Happening(site, 60_000, site.decoy)
    yield _Happening(site, 150_000, None, first_ms=_QUIET_MS)


def _event(site: str, logged: _Logged, sent: int) -> Event:
    value = {
        "site": site,
        "host": logged.host,
        "peer": logged.peer,
        "kind": logged.kind,
        "port": logged.port,
        "ok": logged.ok,
        "bytes": logged.bytes,
        "at": iso(logged.at_ms),
    }
    return Event(sent, TOPIC, logged.host, json.dumps(value).encode())


if __name__ == "__main__":
    main(Generator)
