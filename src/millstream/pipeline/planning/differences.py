"""Says in words what has changed about a topology that its checkpoint depends on.

A query continues from its checkpoint only with the operators that made its state, each unchanged
(``Stateful.identity``). Where things are in the file, what they are called, and what is done with results
does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from millstream.pipeline.dsl.graph import is_named

Shapes = Mapping[str, Any]
_MIGRATE = "a method migrate(self, version, state) would carry its state over"
_HINTS = {"version": f" ({_MIGRATE})", "processor": f" (with name= for both, {_MIGRATE})"}


def differences(old: Shapes, new: Shapes) -> list[str]:
    """What keeps ``old`` queries from being continued as ``new`` ones. An additional query is no change."""
    found: list[str] = []
    there = {one: shape for entry in new.values() for one, shape in entry["operators"].items()}
    known = {one for entry in old.values() for one in entry["operators"]}
    fresh = {one: shape for one, shape in there.items() if one not in known}
    for name, before in old.items():
        gone = {one: shape for one, shape in before["operators"].items() if one not in there}
        found += [line for one in gone.values() for line in _gone(one, fresh)]
        after = new.get(name)
        if after is None:
            if not gone:
                found.append(f"query {name!r}, which reads {', '.join(before['sources'])}, is gone")
            continue
        found += _of_query(name, before, after)
        for one, shape in before["operators"].items():
            if one in there:
                found += _changed(shape, there[one], named=is_named(one))
        if not gone and _states(before) != _states(after):
            found.append(
                f"query {name!r}: the ways from its stateful operators to its sinks are others now, and Spark"
                " would take the state of one for that of another"
            )
    return list(dict.fromkeys(found))


def _states(shape: dict[str, Any]) -> list[Any]:
    return [output["operators"] for output in shape["outputs"] if output["operators"]]


def _of_query(name: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    if before["sources"] != after["sources"]:
        yield f"query {name!r} read {', '.join(before['sources'])}; now {', '.join(after['sources'])}"
    elif before["times"] != after["times"]:
        yield f"query {name!r} goes by other times or lateness than before"
    if before["mode"] != after["mode"] and before["operators"]:
        yield f"query {name!r} gave {before['mode']} results; now {after['mode']}"
    for key, word in (("buckets", "divided its keys into {} buckets"), ("state", "kept its state in {}")):
        if before[key] is not None and before[key] != after[key]:
            yield f"query {name!r} {word.format(before[key])}; now {after[key]}"


def _gone(old: dict[str, Any], fresh: Mapping[str, Any]) -> Iterator[str]:
    """Describes a lost operator by its differences from the one that most likely replaced it."""
    name, kind = old["operator"], old["definition"]["kind"]
    alike = [one for one in fresh.values() if one["definition"]["kind"] == kind]
    same = [one for one in alike if one["operator"] == name] or alike
    if not same:
        yield f"the stateful operator {name!r} ({kind}) is gone"
        return
    lines = list(_changed(old, same[0], named=False))
    yield from lines or [f"the stateful operator {name!r} ({kind}) is gone"]


def _changed(old: dict[str, Any], new: dict[str, Any], *, named: bool) -> Iterator[str]:
    """What is different about an operator. A named operator may take other rows than before."""
    name = f"the stateful operator {old['operator']!r}"
    was, now = old["definition"], new["definition"]
    # A processor with migrate() can take over state of another version and, if both have the same name=,
    # of another class. Whether it still has migrate() makes no difference by itself.
    carried = {"migrates"}
    if now.get("migrates"):
        carried |= {"version", "processor"} if named else {"version"}
    for part in dict.fromkeys([*was, *now]):
        if part not in carried and was.get(part) != now.get(part):
            yield (
                f"{name} had {part.removesuffix('_us').replace('_', ' ')} {_text(was.get(part))};"
                f" now {_text(now.get(part))}{_HINTS.get(part, '')}"
            )
    if not named and old["of"] != new["of"]:
        yield f"{name} took its rows from {_rows(old['of'])}; now from {_rows(new['of'])}"
    if old["engine"] != new["engine"]:
        yield f"{name} was worked out by {old['engine']}; now by {new['engine']}"


def _rows(origins: Any) -> str:
    """Describes in one line where rows come from."""
    return " and ".join(_origin(one) for one in origins)


def _origin(one: Any) -> str:
    if isinstance(one, list):  # a stream, and the columns taken from it
        stream, columns = one
        return _origin(stream) + (f" ({', '.join(columns)})" if columns else "")
    above = one.get("of") or one.get("union") or one.get("rejected") or []
    of = " and ".join(_origin(part) for part in above) if isinstance(above, list) else "another operator"
    for word in ("where", "select", "otherwise", "operator", "channel", "tag"):
        if one.get(word) is not None:
            return f"{of}, {word} {_text(one[word])}"
    return one.get("source") or of


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
