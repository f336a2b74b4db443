"""The parts by name, in the order in which they are reported. A new kind of work is added here."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.campaign.parts import Part
from tests.campaign.parts_churn import ChurnPart
from tests.campaign.parts_records import AGED, RING, SIZED, TRIMMED, VOLATILE, RecordsPart, Topic
from tests.campaign.parts_tables import TablesPart
from tests.campaign.parts_transactions import TransactionsPart

MB = 1_000_000


def _segments(chance: Random) -> str:
    return str(chance.choice((131_072, 262_144, MB)))


def _stream(chance: Random, quick: bool) -> list[Topic]:
    config = {"segment.bytes": _segments(chance)}
    return [Topic("stream", 3, config, rates=(0, 3000), kafka_python=1, followers=1)]


def _groups(chance: Random, quick: bool) -> list[Topic]:
    # All of them take part in every round. What is left from earlier rounds is trimmed, so a group that sat
    # out a round would have lost it.
    groups = {"g-classic": "range", "g-cooperative": "cooperative-sticky", "g-consumers": "consumer"}
    return [Topic("work", 4, {"segment.bytes": _segments(chance)}, rates=(2000,), groups=groups)]


def _exports(chance: Random, quick: bool) -> list[Topic]:
    return [Topic("exported", 2, {"segment.bytes": _segments(chance)}, rates=(2000,), exporters=True)]


def _look_ups(chance: Random, quick: bool) -> list[Topic]:
    return [
        Topic("timed", 2, {"segment.bytes": str(chance.choice((262_144, 100 * MB)))}, rates=(0,), askers=2)
    ]


def _archive(chance: Random, quick: bool) -> list[Topic]:
    config = {
        "segment.bytes": "131072",
        "remote.storage.enable": "true",
        "local.retention.bytes": str(chance.choice((1, 300_000))),
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "file.delete.delay.ms": str(chance.choice((0, 500))),
    }
    return [Topic("archived", 2, config, rates=(4000,), replayers=1, exporters=chance.random() < 0.5)]


def _retention(chance: Random, quick: bool) -> list[Topic]:
    sized = {"segment.bytes": str(MB), "retention.bytes": str(3 * MB)}
    aged = {
        "segment.bytes": "262144",
        "segment.ms": "1000",
        "retention.ms": "4000",
        "file.delete.delay.ms": "0",
    }
    slowly = "3000" if quick else "60000"
    return [
        Topic("sized", 1, {**sized, "file.delete.delay.ms": "1000"}, SIZED),
        Topic("sized-slowly", 1, {**sized, "file.delete.delay.ms": slowly}, SIZED, rates=(5000,)),
        Topic("aged", 2, aged, AGED, rates=(5000,)),
    ]


def _rings(chance: Random, quick: bool) -> list[Topic]:
    def ring(size: int) -> dict[str, str]:
        return {"millstream.overload": "drop", "millstream.overload.bytes": str(size)}

    return [
        Topic("ring", 1, ring(4 * MB), RING),
        Topic("ring-small", 2, {**ring(MB), "file.delete.delay.ms": "60000"}, RING, rates=(5000,)),
    ]


def _trims(chance: Random, quick: bool) -> list[Topic]:
    config = {"segment.bytes": _segments(chance), "file.delete.delay.ms": str(chance.choice((0, 1000)))}
    return [Topic("trimmed", 2, config, TRIMMED, rates=(0,))]


def _backpressure(chance: Random, quick: bool) -> list[Topic]:
    config = {
        "millstream.overload": "backpressure",
        "millstream.overload.groups": "g-held",
        "millstream.overload.lag.records": str(chance.choice((2000, 20_000))),
        "millstream.overload.hold.ms": "2000",
        "segment.bytes": _segments(chance),
    }
    return [Topic("held", 2, config, rates=(0,), groups={"g-held": chance.choice(("range", "consumer"))})]


def _memory(chance: Random, quick: bool) -> list[Topic]:
    in_memory = {"millstream.storage": "memory", "segment.bytes": "262144"}
    ring = {"millstream.overload": "drop", "millstream.overload.bytes": str(4 * MB)}
    return [
        Topic("volatile-ring", 1, in_memory | ring, VOLATILE, rates=(5000,)),
        Topic("volatile", 1, in_memory | {"retention.bytes": str(4 * MB)}, VOLATILE, rates=(2000,)),
    ]


_RECORDS: dict[str, Callable[[Random, bool], list[Topic]]] = {
    "stream": _stream,
    "groups": _groups,
    "exports": _exports,
    "look-ups": _look_ups,
    "archive": _archive,
    "retention": _retention,
    "rings": _rings,
    "trims": _trims,
    "backpressure": _backpressure,
    "memory": _memory,
}
NAMES = [*_RECORDS, TablesPart.name, ChurnPart.name, TransactionsPart.name]


def make_parts(names: list[str]) -> dict[str, Part]:
    others: dict[str, Callable[[], Part]] = {
        part.name: part for part in (TablesPart, ChurnPart, TransactionsPart)
    }
    return {name: RecordsPart(name, _RECORDS[name]) if name in _RECORDS else others[name]() for name in names}
