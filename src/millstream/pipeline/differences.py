"""What changed about a topology that its checkpoint depends on, in words.

A checkpoint can be continued only by queries of the shape that it was made by (``Query.shape``). Names don't
matter; the keys, bounds and order of what keeps state do.
"""

from __future__ import annotations

import json
from typing import Any


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What changed that a checkpoint depends on, in words. A query more is no change."""
    found = []
    for name, before in old.items():
        after = new.get(name)
        if after is None:
            found.append(f"query {name!r}, which reads {', '.join(before['sources'])}, is gone")
            continue
        if before["sources"] != after["sources"]:
            found.append(
                f"query {name!r} read {', '.join(before['sources'])}; now {', '.join(after['sources'])}"
            )
        if before["times"] != after["times"]:
            found.append(f"query {name!r} goes by other times or lateness than before")
        if before["emit"] != after["emit"]:
            found.append(f"query {name!r} gave {before['emit']} results; now {after['emit']}")
        windows, others = before["windows"], after["windows"]
        if len(windows) != len(others):
            found.append(f"query {name!r} had {len(windows)} windows; now {len(others)}")
        for number, (one, other) in enumerate(zip(windows, others, strict=False), 1):
            found += [
                f"window {number} of query {name!r} was {one[part]}; now {other[part]}"
                for part in ("window", "aggregates")
                if one[part] != other[part]
            ]
        found += _operators(name, before, after)
    return found


def _operators(query: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What changed about the stateful operators of a query. Spark knows them by their place alone, and what
    they are called does not matter."""
    old, new = before.get("operators") or [], after.get("operators") or []
    if not old and not new:
        return []
    if len(old) != len(new) or [_made(one) for one in old] != [_made(one) for one in new]:
        moved = _moved(old, new)
        if moved:
            return [f"query {query!r}: {line}" for line in moved]
    found = []
    for key, word in (("buckets", "divided its keys into {} buckets"), ("state", "kept its state in {}")):
        if before.get(key) != after.get(key) and before.get(key) is not None and old:
            found.append(f"query {query!r} {word.format(before[key])}; now {after.get(key)}")
    for one, other in zip(old, new, strict=False):
        found += _changed(one, other)
    return found


def _made(operator: dict[str, Any]) -> dict[str, Any]:
    """An operator without its names."""
    keys = [entry["by"] for entry in operator["inputs"]]
    return {**operator, "operator": None, "inputs": keys}


def _moved(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """Operators that came, went or changed places."""
    was, now = [one["operator"] for one in old], [one["operator"] for one in new]
    gone = [f"the stateful operator {name!r} is gone" for name in was if name not in now]
    came = [f"the stateful operator {name!r} is new" for name in now if name not in was]
    if len(was) != len(now):
        return gone + came or [f"it had {len(was)} stateful operators; now {len(now)}"]
    if not gone and was != now:
        return [
            f"its stateful operators stood in the order {', '.join(was)}; now {', '.join(now)}: the order is"
            " that of the sinks in the file"
        ]
    return []


def _changed(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    name = f"the stateful operator {one['operator']!r}"
    found = []
    keys, others = ([entry["by"] for entry in operator["inputs"]] for operator in (one, other))
    if keys != others:
        found.append(f"{name} had the keys {_text(keys)}; now {_text(others)}")
    inputs, turned = ([entry["from"] for entry in operator["inputs"]] for operator in (one, other))
    if inputs != turned and sorted(inputs) == sorted(turned):
        found.append(f"{name} had its inputs in the order {', '.join(inputs)}; now {', '.join(turned)}")
    parts = dict.fromkeys([*one, *other])
    return found + [
        f"{name} had {part.removesuffix('_us').replace('_', ' ')} {_text(one.get(part))};"
        f" now {_text(other.get(part))}"
        for part in parts
        if part not in ("operator", "inputs") and one.get(part) != other.get(part)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
