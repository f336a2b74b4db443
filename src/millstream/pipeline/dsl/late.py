"""The streams ``source.late`` and ``source.ahead``: a source's rows that stateful operators set aside.

Late rows came too late. Rows that are ahead have a time too far in the future to be believed. Which operators
read a source is known only when everything is declared, so the contents of these streams are settled then,
and the streams may be requested before anything else.
"""

from __future__ import annotations

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.stateful import Stateful, StatefulChannel, beside, feeding_sources
from millstream.pipeline.dsl.streams import Source, Stream, Union

OPERATOR = "operator"


class SourceChannel(Union):
    """The late rows (or the rows too far ahead) of all stateful operators that a source feeds. The column
    ``operator`` names the operator that set the row aside."""

    kind = "channel"

    def __init__(self, source: Source, word: str, at: str) -> None:
        self.source, self.word = source, word
        super().__init__(source.flow, (), OPERATOR, f"{source.name}.{word}", at)
        self.columns = None  # they depend on what the operators take
        self.no_time = f"rows that are {word} are outside of time; they can't be windowed or joined"

    def settle(self) -> None:
        """Find the operators' channels that feed this stream. Called when everything is declared."""
        found: dict[int, Stream] = {}
        operators: dict[int, Stateful] = {}
        for stream in list(self.flow.streams):
            if isinstance(stream, StatefulChannel):
                operators.setdefault(id(stream.stateful), stream.stateful)
        for stateful in operators.values():
            for number, one in enumerate(stateful.inputs):
                if self.source in feeding_sources(one.stream):
                    channel = beside(stateful, number, self.word, self.at)
                    found.setdefault(id(channel), channel)
        if not found:
            raise TopologyError(
                f"nothing can be {self.word} in {self.source.name!r}: no window, join or other stateful"
                " operator reads it",
                where=self.at,
            )
        self.inputs = tuple(found.values())

    def tag_of(self, branch: Stream) -> str:
        assert isinstance(branch, StatefulChannel)
        return branch.stateful.known_as

    def about(self) -> str:
        return f"{self.tag} says whose"
