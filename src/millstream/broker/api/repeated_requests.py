"""What the requests of one client have in common, so that only what differs is parsed."""

from __future__ import annotations

from millstream.broker.topics.partition import LocalTopic
from millstream.log.transactions import RequestTransaction
from millstream.wire.hot.fetch import FetchRequest, partition_size, read_wanted


class ProduceShape:
    """What the requests of one producer have in common: everything from the client id to the partition."""

    __slots__ = ("acks", "client_id", "prefix", "size", "topic", "transaction", "version")

    def __init__(
        self,
        version: int,
        prefix: bytes,
        acks: int,
        topic: LocalTopic,
        transaction: RequestTransaction | None,
    ) -> None:
        self.version = version
        self.prefix = prefix
        self.size = len(prefix)
        self.acks = acks
        self.topic = topic
        self.transaction = transaction


class FetchShape:
    """What the requests of one reader have in common: everything before and after the partitions.

    Only for a reader of one topic that uses no session. (librdkafka names all its partitions each time.)
    """

    __slots__ = ("after", "before", "request", "size", "version")

    def __init__(self, version: int, before: bytes, after: bytes, request: FetchRequest) -> None:
        self.version = version
        self.before = before
        self.after = after
        self.request = request
        self.size = len(request.topics[0][1]) * partition_size(version)

    def read(self, buffer: bytearray, view: memoryview, position: int, stop: int) -> FetchRequest | None:
        """The request, or None if it does not have this shape."""
        start = position + len(self.before)
        end = start + self.size
        if (
            end + len(self.after) != stop
            or not buffer.startswith(self.before, position)
            or not buffer.startswith(self.after, end)
        ):
            return None
        wanted = read_wanted(view[start:end], self.version)
        if wanted is None:
            return None
        wait, least, most, isolation, session, epoch, topics, forgotten, _ = self.request
        return FetchRequest(
            wait, least, most, isolation, session, epoch, [(topics[0][0], wanted)], forgotten, start
        )
