"""Gathers from the broker what ``millstream topic describe`` shows, and prints it."""

from __future__ import annotations

import shutil
import textwrap
from datetime import datetime
from typing import Any

from millstream.cli.terminal.output import note, say, show_table
from millstream.client.insight.horizon import Horizon
from millstream.client.librdkafka.admin import Admin, TopicInfo
from millstream.client.protocol.extents import archived_extents
from millstream.client.text.position import TopicPartition
from millstream.client.text.template import utc
from millstream.core.config import settings_of
from millstream.core.topic_config import TopicConfig
from millstream.core.units import bytes_text, count, duration_text

_WIDTH = min(100, shutil.get_terminal_size().columns)
_POLICY, _STATE = "millstream.overload", "millstream.overload.state"
_COMPACTION, _MEMORY = "millstream.compaction.state", "millstream.memory.state"
_STOPPED, _UNCOMPACTED = "millstream.stopped.state", "millstream.uncompacted.state"
_NO_LIMIT = 2**31 - 1  # from here on, a number means "never" or "no limit"


def described(admin: Admin, topic: TopicInfo, horizon: Horizon) -> dict[str, Any]:
    places = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
    problems = {place: horizon.problems[place] for place in places if place in horizon.problems}
    bounds = admin.bounds(places, problems=problems)
    newest = admin.newest_if_told(bounds)
    extents = archived_extents(admin.connection, bounds)
    known = settings_of(TopicConfig)
    partitions = []
    for partition, place in zip(topic.partitions, places, strict=True):
        start, end = bounds.get(place, (None, None))
        time = newest.get(place)
        partitions.append(
            {
                "partition": partition.index,
                "start": start,
                "end": end,
                "records": None if start is None or end is None else end - start,
                "newest": None if time is None else utc(time),
                "bytes": horizon.sizes.get(place),
                "local_start": extents[place].local_start if place in extents else start,
                "archived_end": extents[place].archived_end if place in extents else None,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "problem": problems.get(place),
            }
        )
    settings = {value.name: value for value in admin.topic_config(topic.name)}
    state, compaction, memory = (settings.pop(name, None) for name in (_STATE, _COMPACTION, _MEMORY))
    stopped = settings.pop(_STOPPED, None)
    settings.pop(_UNCOMPACTED, None)  # the state of compaction says the same
    policy = settings.get(_POLICY)
    return {
        "topic": topic.name,
        "id": topic.id,
        "internal": topic.internal,
        "partitions": partitions,
        "stopped": stopped and stopped.value,
        # None on Apache Kafka, which has no such policies.
        "overload": policy and {"policy": policy.value, "state": state and state.value},
        "compaction": compaction and compaction.value,
        "memory": memory and memory.value,
        "horizon": _horizon(horizon, topic),
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


def _horizon(horizon: Horizon, topic: TopicInfo) -> dict[str, Any]:
    """How far back the topic reaches, and how soon the first disk is full."""
    ahead = horizon.topics[topic.name]
    full = [disk.full_seconds for disk in horizon.disks if disk.full_seconds is not None]
    volume = ahead.bytes_per_second
    return {
        "records_per_second": round(ahead.records_per_second, 3),
        "bytes_per_second": None if volume is None else round(volume, 3),
        "kept_ms": _ms(ahead.kept_seconds),
        "oldest": None if ahead.oldest_ms is None else utc(ahead.oldest_ms),
        "disk_free_bytes": min((disk.free_bytes for disk in horizon.disks), default=None),
        "disk_full_ms": _ms(min(full, default=None)),
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _show_horizon(horizon: dict[str, Any], now_ms: int) -> None:
    rate, volume = horizon["records_per_second"], horizon["bytes_per_second"]
    if rate:
        amount = "" if volume is None else f", {bytes_text(round(volume))}/s"
        say(f"Written at {rate:,.3g} records/s{amount} (over the last 10 minutes).")
    else:
        say("Nothing was written in the last 10 minutes.")
    kept = horizon["kept_ms"]
    reach = "Nothing is deleted by retention" if kept is None else f"Retention keeps {duration_text(kept)}"
    if kept is not None and rate:
        reach += " at that rate"
    if horizon["oldest"] is not None:
        age = now_ms - round(datetime.fromisoformat(horizon["oldest"]).timestamp() * 1000)
        reach += f"; the oldest record is {duration_text(age)} old"
    say(f"{reach}.")
    if horizon["disk_full_ms"] is not None:
        free = bytes_text(horizon["disk_free_bytes"])
        full = duration_text(horizon["disk_full_ms"])
        say(f"The disk is full in {full} at the rates of the last ten minutes ({free} free).")


def show_description(topic: dict[str, Any], *, now_ms: int, all_settings: bool) -> None:
    partitions = topic["partitions"]
    sized = any(partition["bytes"] is not None for partition in partitions)
    archived = any(partition["archived_end"] is not None for partition in partitions)
    several = any(len(partition["replicas"]) > 1 for partition in partitions)
    total = sum(partition["records"] or 0 for partition in partitions)
    size = sum(partition["bytes"] or 0 for partition in partitions)
    say(
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
    for partition in partitions:
        if partition["problem"]:
            note(f"partition {partition['partition']}: not fully known: {partition['problem']}")
    if topic["stopped"]:
        say(f"stopped, no writes are accepted in partition {topic['stopped']}")
    overload = topic["overload"]
    if overload is not None and (overload["state"] or overload["policy"] != "buffer"):
        say(f"overload: {overload['policy']}" + (f"; {overload['state']}" if overload["state"] else ""))
    if topic["compaction"]:
        say(f"compaction: {topic['compaction']}")
    if topic["memory"]:
        say(f"memory: {topic['memory']}")
    _show_horizon(topic["horizon"], now_ms)
    settings = [setting for setting in topic["settings"] if all_settings or setting["own"]]
    if not settings:
        say("All settings are the broker's defaults; --all shows them.")
    for setting in settings:
        say(f"{setting['name']} = {setting['value']}{_in_words(setting['name'], setting['value'])}")
        if setting["meaning"]:
            say(textwrap.indent(textwrap.fill(setting["meaning"], _WIDTH - 4), "    "))


def _in_words(name: str, value: str | None) -> str:
    """Milliseconds or bytes in readable form, in brackets: 86400000 ms is ``(1 d)``. Empty for others."""
    if value is None or not value.isdigit() or int(value) >= _NO_LIMIT:
        return ""
    if name.endswith(".ms"):
        return f" ({duration_text(int(value))})"
    return f" ({bytes_text(int(value))})" if name.endswith(".bytes") else ""
