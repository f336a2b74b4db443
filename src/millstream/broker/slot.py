"""The place of an answer in its connection's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.wire.fetch import Part

if TYPE_CHECKING:
    from millstream.broker.connection import Connection


class Slot:
    """The place of an answer that is not there yet."""

    __slots__ = ("answer", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answer: list[Part] | None = None

    def resolve(self, answer: list[Part], size: int) -> None:
        """The answer is there; it leaves when all before it have."""
        connection = self.connection
        if connection.is_closed:
            return
        if len(connection.pending) == 1:  # nobody but this one
            connection.pending.clear()
            connection.answer_parts(answer, size)
            connection.answered()
        else:
            self.answer = answer
            connection.owe(size)
            connection.advance()

    def abandon(self) -> None:
        """The connection is gone; nobody waits for this answer."""
