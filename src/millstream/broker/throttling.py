"""Client quotas, enforced: how much a client may produce and fetch in a second, and how long it waits else.

As in Kafka (KIP-13, KIP-219): a rate is measured over eleven windows of a second. Who is above its quota is
answered at once, with how long to wait in ``throttle_time_ms``, and its connection is not read from for that
long; newer clients send nothing meanwhile by themselves. A Fetch that is throttled is answered without
records, which are fetched again later.

A quota stands for a user, a client id or both, by name or for all that have none of their own. The most
particular one counts (``_precedence``), and its rate is shared by whoever it stands for: by all connections
of a user if it is the user's, by those of one client id if it is that one's, also where it is the default.

No I/O, and the clock is passed in.
"""

from __future__ import annotations

from collections import deque

from millstream.broker.quotas import CLIENT_ID, USER, Entity, Quotas

ANONYMOUS = "ANONYMOUS"  # the user of a connection that said nothing of who it is
PRODUCE_RATE, FETCH_RATE = "producer_byte_rate", "consumer_byte_rate"
_WINDOWS = 11
_WINDOW = 1.0  # seconds
_MEASURED = (_WINDOWS - 1) * _WINDOW  # what a rate is measured over, at least


class Meter:
    """One rate: bytes in a second, and what is allowed."""

    __slots__ = ("_samples", "_total", "limit")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._samples: deque[tuple[float, float]] = deque()  # when a window began, and what was counted in it
        self._total = 0.0

    @property
    def burst(self) -> int:
        """What may be used at once by who used nothing before."""
        return max(1, int(self.limit * _MEASURED))

    def count(self, amount: float, now: float) -> float:
        """So much was used; for how many seconds to use nothing more."""
        samples = self._samples
        if samples and now - samples[-1][0] < _WINDOW:
            samples[-1] = (samples[-1][0], samples[-1][1] + amount)
        else:
            samples.append((now, amount))
        self._total += amount
        return self.wait(now)

    def wait(self, now: float) -> float:
        """For how many seconds to use nothing more; 0 if the rate is within what is allowed."""
        samples = self._samples
        while samples and now - samples[0][0] >= _WINDOWS * _WINDOW:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0
            return 0.0
        measured = max(now - samples[0][0], _MEASURED)
        return max(0.0, self._total / self.limit - measured)


def _precedence(user: str, client: str) -> list[tuple[Entity, tuple[str, str]]]:
    """The entities that may have a quota for this client, the most particular first; and who shares it."""
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
        """Quotas were changed. Rates that were measured under the old ones are kept where they still count;
        connections have to ask for their meters anew."""
        self._quotas = quotas
        for (key, entity, _), meter in list(self._meters.items()):
            limit = quotas.get(entity, {}).get(key)
            if limit is not None:
                meter.limit = limit
        self._meters = {at: meter for at, meter in self._meters.items() if at[0] in quotas.get(at[1], {})}

    def meter(self, key: str, client: str, user: str = ANONYMOUS) -> Meter | None:
        """What counts for connections of this client; None: no quota."""
        for entity, shared in _precedence(user, client) if self._quotas else ():
            limit = self._quotas.get(entity, {}).get(key)
            if limit is not None:
                return self._meters.setdefault((key, entity, shared), Meter(limit))
        return None
