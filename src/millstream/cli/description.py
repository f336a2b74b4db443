"""What ``millstream topic describe`` shows: gathered from the broker, then printed."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from millstream.cli.output import bytes_text, count, duration_text, show_table
from millstream.client.admin import Admin, TopicInfo
from millstream.client.extents import archived_extents
from millstream.client.position import TopicPartition
from millstream.client.sizes import partition_sizes
from millstream.client.template import utc
from millstream.config import TopicConfig, settings_of
from millstream.errors import RequestFailed

_WIDTH = min(100, shutil.get_terminal_size().columns)
_POLICY, _STATE = "millstream.overload", "millstream.overload.state"
_NO_LIMIT = 2**31 - 1  # larger numbers mean "never" or "no limit"


def described(admin: Admin, topic: TopicInfo) -> dict[str, Any]:
    places = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
    bounds = admin.bounds(places)
    newest = _newest(admin, places)
    sizes = partition_sizes(admin.connection, places)
    extents = archived_extents(admin.connection, places)
    known = settings_of(TopicConfig)
    partitions = []
    for partition, place in zip(topic.partitions, places, strict=True):
        start, end = bounds[place]
        time = newest.get(place)
        partitions.append(
            {
                "partition": partition.index,
                "start": start,
                "end": end,
                "records": end - start,
                "newest": None if time is None else utc(time),
                "bytes": sizes.get(place),
                "local_start": extents[place].local_start if place in extents else start,
                "archived_end": extents[place].archived_end if place in extents else None,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
            }
        )
    settings = {value.name: value for value in admin.topic_config(topic.name)}
    state = settings.pop(_STATE, None)
    policy = settings.get(_POLICY)
    return {
        "topic": topic.name,
        "id": topic.id,
        "internal": topic.internal,
        "partitions": partitions,
        # None on a Kafka that is not ours: it has no such policies.
        "overload": policy and {"policy": policy.value, "state": state and state.value},
        "settings": [
            {
                "name": value.name,
                "value": value.value,
                "own": value.own,
                "meaning": known[value.name].doc if value.name in known else None,
            }
            for value in settings.values()
        ],
    }


def _newest(admin: Admin, places: list[TopicPartition]) -> dict[TopicPartition, int | None]:
    try:
        return admin.newest(places)
    except RequestFailed:
        return {}  # brokers before Kafka 3.0 do not know the question


def show_description(topic: dict[str, Any], *, all_settings: bool) -> None:
    partitions = topic["partitions"]
    sized = any(partition["bytes"] is not None for partition in partitions)
    archived = any(partition["archived_end"] is not None for partition in partitions)
    several = any(len(partition["replicas"]) > 1 for partition in partitions)
    total = sum(partition["records"] for partition in partitions)
    size = sum(partition["bytes"] or 0 for partition in partitions)
    print(
        f"{topic['topic']}: {count(len(partitions), 'partition')}, {count(total, 'record')}"
        + (f", {bytes_text(size)}" if sized else "")
    )
    columns: list[str] = ["partition", "start", "end", "records"]
    columns += ["local from", "archived to"] if archived else []
    columns += ["size"] if sized else []
    columns += ["newest"]
    columns += ["leader", "replicas", "in sync"] if several else []
    rows = []
    for partition in partitions:
        row: list[Any] = [partition[name] for name in ("partition", "start", "end", "records")]
        if archived:
            row += [partition["local_start"], partition["archived_end"]]
        if sized:
            row.append(None if partition["bytes"] is None else bytes_text(partition["bytes"]))
        row.append(partition["newest"])
        if several:
            row.append(partition["leader"])
            row += [",".join(map(str, partition[name])) for name in ("replicas", "in_sync")]
        rows.append(row)
    show_table(columns, rows)
    overload = topic["overload"]
    if overload is not None and (overload["state"] or overload["policy"] != "buffer"):
        print(f"overload: {overload['policy']}" + (f"; {overload['state']}" if overload["state"] else ""))
    settings = [setting for setting in topic["settings"] if all_settings or setting["own"]]
    if not settings:
        print("All settings are the broker's defaults; --all shows them.")
    for setting in settings:
        print(f"{setting['name']} = {setting['value']}{_in_words(setting['name'], setting['value'])}")
        if setting["meaning"]:
            print(textwrap.indent(textwrap.fill(setting["meaning"], _WIDTH - 4), "    "))


def _in_words(name: str, value: str | None) -> str:
    """``86400000`` is ``1 d`` to most people."""
    if value is None or not value.isdigit() or int(value) >= _NO_LIMIT:
        return ""
    if name.endswith(".ms"):
        return f" ({duration_text(int(value))})"
    return f" ({bytes_text(int(value))})" if name.endswith(".bytes") else ""
