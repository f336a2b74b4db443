"""A slot keeps the place of a response that is not ready yet, so that responses are sent in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.wire.hot.fetch import Part

if TYPE_CHECKING:
    from millstream.broker.net.connection import Connection


class Slot:
    """The place of one response among those of its connection."""

    __slots__ = ("answer", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answer: list[Part] | None = None

    def resolve(self, answer: list[Part], size: int) -> None:
        """Set the response. It is sent once all responses before it are sent."""
        connection = self.connection
        if connection.is_closed:
            return
        if len(connection.pending) == 1:  # no other response is pending
            connection.pending.clear()
            connection.answer_parts(answer, size)
            connection.answered()
        else:
            self.answer = answer
            connection.owe(size)
            connection.advance()

    def abandon(self) -> None:
        """The connection is gone. Subclasses clean up here."""
