"""The streams ``source.late`` and ``source.ahead``: a source's rows that stateful operators set aside.

Late rows came too late. Rows that are ahead have a time too far in the future to be believed. Which operators
read a source is known only when everything is declared, so the contents of these streams are settled then,
and the streams may be requested before anything else.
"""

from __future__ import annotations

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.graph import StreamNode
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.dsl.stateful import late_rows
from millstream.pipeline.dsl.unions import UnionNode

OPERATOR = "operator"


class LateNode(UnionNode):
    """The late rows (or the rows too far ahead) of all stateful operators that a source feeds. The column
    ``operator`` names the operator that set the row aside."""

    kind = "channel"
    late_source: SourceNode

    def __init__(self, source: SourceNode, word: str, at: str) -> None:
        self.late_source, self.word = source, word
        super().__init__(source.flow, (), OPERATOR, f"{source.name}.{word}", at)
        self.columns = None  # they depend on what the operators take
        self.no_time = f"rows that are {word} are outside of time; they can't be windowed or joined"

    def find_inputs(self) -> None:
        """Find the operators' channels that feed this stream."""
        operators = dict.fromkeys(stream.state for stream in self.flow.streams if stream.state is not None)
        found = dict.fromkeys(
            late_rows(operator, number, self.word, self.at)
            for operator in operators
            for number, one in enumerate(operator.inputs)
            if self.late_source in one.stream.feeding()
        )
        if not found:
            raise TopologyError(
                f"{self.late_source.name!r} has no {self.word} rows: no window, join or other stateful"
                " operator reads it",
                where=self.at,
            )
        self.inputs = tuple(found)

    def tag_of(self, branch: StreamNode) -> str:
        assert branch.state is not None
        return branch.state.known_as

    def about(self) -> str:
        return f"{self.tag} says whose"


def late_of(source: SourceNode, word: str, at: str) -> LateNode:
    """The late rows of a source, or its rows too far ahead; made once."""
    for stream in source.flow.streams:
        if isinstance(stream, LateNode) and stream.late_source is source and stream.word == word:
            return stream
    return LateNode(source, word, at)
