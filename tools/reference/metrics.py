"""Writes the page of metrics from the collector that declares them.

A metric family is declared where it is collected, and some only if the server has something to report (an
archive, a standby). So the collector runs over a fake server that has every part, and each part is empty. It
declares all of its families, and finds no values for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from millstream.broker.metrics import Collector

GROUPS = {
    "The broker": "",
    "Standby": "millstream_standby_ millstream_follower_ millstream_fenced",
    "Topics": "millstream_topic_",
    "Partitions": "millstream_partition_",
    "Archive": "millstream_archive_",
    "Compaction": "millstream_compaction_",
    "Overload": "millstream_overload_",
    "The disk": "millstream_disk_ millstream_storage_",
    "Topics in memory": "millstream_memory_",
    "Groups": "millstream_group_",
    "Transactions": "millstream_transaction_ millstream_transactions_",
}

_ABOUT = """\
`millstream serve --http HOST:PORT` serves these in Prometheus's format at `/metrics`. Counters start at 0
with the broker. Metrics without a value (a horizon that never comes, a topic that is not archived) are left
out. [Alarms](../operations/alarms.md) says which of them should wake somebody up."""


class _Nothing:
    """A fake for any part of a server: empty, zero, and all of its attributes are like it."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *_: Any) -> _Nothing:
        return self

    def __getitem__(self, _: Any) -> _Nothing:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __floordiv__(self, _: Any) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0


def families() -> list[Any]:
    """Every metric family that a broker can have, without values, in the order of collection."""
    nothing = cast(Any, _Nothing())
    return list(Collector(nothing, nothing, nothing, nothing).collect())


def exposed_name(family: Any) -> str:
    """The name in queries: a counter is exposed with ``_total`` after its name."""
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def metrics_page() -> str:
    """docs/reference/metrics.md"""
    rows: dict[str, list[str]] = {title: [] for title in GROUPS}
    for family in families():
        title = next(
            (title for title, prefixes in GROUPS.items() if family.name.startswith(tuple(prefixes.split()))),
            "The broker",
        )
        labels = ", ".join(f"`{label}`" for label in family._labelnames)
        rows[title].append(
            f"| `{exposed_name(family)}` | {family.type} | {labels} | {family.documentation} |"
        )
    out = ["# Metrics", _ABOUT]
    for title, found in rows.items():
        head = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
        out += [f"## {title}", "\n".join([*head, *found])]
    return "\n\n".join(out)
