"""A fake of Spark's state store, as a stateful processor sees it.

A batch works on a copy of the variables, which takes effect only when the batch is committed.
"""

from __future__ import annotations

from typing import Any


class FakeValue:
    def __init__(self, value: tuple[Any, ...] | None = None) -> None:
        self.value = value

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value


class FakeMap:
    def __init__(self, values: dict[tuple[Any, ...], tuple[Any, ...]] | None = None) -> None:
        self.values = dict(values or {})

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.values.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.values[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self.values.pop(key, None)

    def clear(self) -> None:
        self.values.clear()


class Variables:
    """The three variables that the kernel has for a bucket, as they are when a task begins."""

    def __init__(self) -> None:
        self.head, self.snapshot, self.changes = FakeValue(), FakeMap(), FakeMap()

    def copy(self) -> Variables:
        made = Variables()
        made.head = FakeValue(self.head.value)
        made.snapshot, made.changes = FakeMap(self.snapshot.values), FakeMap(self.changes.values)
        return made

    @property
    def bytes(self) -> int:
        """The number of bytes kept."""
        parts = [value[0] for value in self.snapshot.values.values()]
        return sum(map(len, parts)) + sum(len(value[2]) for value in self.changes.values.values())
