"""An event as a user's function sees it: its columns by name, and its time."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OURS = ("time", "stream", "as_dict")
MICROSECOND = timedelta(microseconds=1)


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return EPOCH + timedelta(microseconds=micros)


def micros(time: datetime) -> int:
    """A time as microseconds since 1970; a time without a zone is UTC."""
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


class Event(tuple[Any, ...]):
    """A row. ``event.card`` or ``event["card"]`` is a column; ``event.time`` is the row's time.

    ``event_type`` makes a class for the columns of a stream. An event is a tuple of the columns' values
    and the time in microseconds, because making one must cost next to nothing.

        >>> class Show(Processor):
        ...     def on_event(self, event: Event, context):
        ...         context.emit(what=f"{event.card} {event['eur']} {event.time:%H:%M} {event.stream}")
        >>> processed(Show, "what string", {"card": "c1", "eur": 2.5, "at": "2026-01-01T10:00:00Z"})
        [{'what': 'c1 2.5 10:00 payments'}]
    """

    __slots__ = ()
    columns: ClassVar[tuple[str, ...]] = ()
    stream: ClassVar[str] = ""  # the name of the stream that it came from
    _places: ClassVar[dict[str, int]] = {}

    @property
    def time(self) -> datetime:
        return moment(tuple.__getitem__(self, -1))

    def as_dict(self) -> dict[str, Any]:
        """All columns by name.

        >>> class Show(Processor):
        ...     def on_event(self, event, context):
        ...         context.emit(columns=", ".join(event.as_dict()))
        >>> processed(Show, "columns string", {"card": "c1"})
        [{'columns': 'card, eur, country, at'}]
        """
        return dict(zip(self.columns, self, strict=False))

    def __getitem__(self, column: Any) -> Any:
        if not isinstance(column, str):
            return tuple.__getitem__(self, column)
        try:
            return tuple.__getitem__(self, self._places[column])
        except KeyError:
            raise KeyError(f"no column {column!r}; the columns are {', '.join(self.columns)}") from None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"an event of this stream has no {name!r}; it has {', '.join(self.columns)}")

    def __repr__(self) -> str:
        return f"Event({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


def event_type(columns: Sequence[str], stream: str = "") -> type[Event]:
    """The class of events with these columns. A column is available only as ``event["its name"]`` if an
    event uses the name itself, or if it is not a Python name."""
    fields = [f"_{number}" if name in _OURS else name for number, name in enumerate(columns)]
    named: Any = namedtuple("Event", [*fields, "_time"], rename=True)  # type: ignore[misc]
    usable: tuple[str, ...] = named._fields
    getters = {field: vars(named)[field] for field in usable if not field.startswith("_")}
    places = {name: number for number, name in enumerate(columns)}
    body: dict[str, Any] = {
        "__slots__": (),
        **getters,
        "columns": tuple(columns),
        "stream": stream,
        "_places": places,
    }
    return type("Event", (Event,), body)
