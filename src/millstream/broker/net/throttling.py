"""Enforce client quotas: measure what clients produce and fetch per second, and how long they have to wait.

As in Kafka (KIP-13, KIP-219), a rate is measured over eleven windows of one second. A client above its quota
gets its response at once, with the time to wait in ``throttle_time_ms``, and its connection is not read from
for that time. Newer clients also send nothing in the meantime. A throttled Fetch gets a response without
records, and the client fetches them later.

A quota belongs to a user, a client id or both, by name or as the default for all without a quota of their
own. The most specific quota counts (``_precedence``). All connections of one user share the rate of a user's
quota, and all connections of one client id share that of a client id's quota. A default quota is shared in
the same way: each user or client id has its own rate.

No I/O, and the clock is passed in.
"""

from __future__ import annotations

from collections import deque

from millstream.broker.catalogue.quotas import CLIENT_ID, USER, Entity, Quotas

ANONYMOUS = "ANONYMOUS"  # the user of a connection that is not authenticated
PRODUCE_RATE, FETCH_RATE = "producer_byte_rate", "consumer_byte_rate"
_WINDOWS = 11
_WINDOW = 1.0  # seconds
_MEASURED = (_WINDOWS - 1) * _WINDOW  # the shortest time over which a rate is measured


class Meter:
    """One rate: what was used, and the limit per second."""

    __slots__ = ("_samples", "_total", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._samples: deque[tuple[float, float]] = deque()  # when a window began, and the amount used in it
        self._total = 0.0

    @property
    def burst(self) -> int:
        """The amount that may be used at once after a time without use."""
        return max(1, int(self.limit * _MEASURED))

    def count(self, amount: float, now: float) -> float:
        """Count an amount that was used. Returns the seconds to wait before more is used."""
        samples = self._samples
        if samples and now - samples[-1][0] < _WINDOW:
            samples[-1] = (samples[-1][0], samples[-1][1] + amount)
        else:
            samples.append((now, amount))
        self._total += amount
        return self.wait(now)

    def wait(self, now: float) -> float:
        """The seconds to wait before more is used; 0 if the rate is within the limit."""
        samples = self._samples
        while samples and now - samples[0][0] >= _WINDOWS * _WINDOW:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0
            return 0.0
        measured = max(now - samples[0][0], _MEASURED)
        return max(0.0, self._total / self.limit - measured)


def _precedence(user: str, client: str) -> list[tuple[Entity, tuple[str, str]]]:
    """The entities whose quota may apply to this client, most specific first, each with the user and client
    id that share its rate."""
    both = {USER, CLIENT_ID}
    found = []
    for user_name, client_name, kinds in (
        (user, client, both),
        (user, None, both),
        (user, "", {USER}),
        (None, client, both),
        (None, None, both),
        (None, "", {USER}),
        ("", client, {CLIENT_ID}),
        ("", None, {CLIENT_ID}),
    ):
        names: dict[str, str | None] = {}
        if USER in kinds:
            names[USER] = user_name
        if CLIENT_ID in kinds:
            names[CLIENT_ID] = client_name
        shared = (user if USER in kinds else "", client if CLIENT_ID in kinds else "")
        found.append((frozenset(names.items()), shared))
    return found


class Throttling:
    """All quotas of one broker."""

    def __init__(self) -> None:
        self._quotas: Quotas = {}
        self._meters: dict[tuple[str, Entity, tuple[str, str]], Meter] = {}

    def set_quotas(self, quotas: Quotas) -> None:
        """Apply changed quotas. Rates measured so far are kept where the quota still exists. Connections have
        to ask for their meters again."""
        self._quotas = quotas
        for (key, entity, _), meter in list(self._meters.items()):
            limit = quotas.get(entity, {}).get(key)
            if limit is not None:
                meter.limit = limit
        self._meters = {at: meter for at, meter in self._meters.items() if at[0] in quotas.get(at[1], {})}

    def meter(self, key: str, client: str, user: str = ANONYMOUS) -> Meter | None:
        """The meter for connections of this client; None if it has no quota."""
        for entity, shared in _precedence(user, client) if self._quotas else ():
            limit = self._quotas.get(entity, {}).get(key)
            if limit is not None:
                return self._meters.setdefault((key, entity, shared), Meter(limit))
        return None
