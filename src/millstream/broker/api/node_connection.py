"""A connection as the handlers of Produce and Fetch see it: its node, and its last requests' shapes."""

from __future__ import annotations

from millstream.broker.api.repeated_requests import FetchShape, ProduceShape
from millstream.broker.net.connection import ClientConnection, ConnectionHost
from millstream.broker.net.shared_io import SharedIO
from millstream.broker.node import Node


class NodeConnection(ClientConnection):
    """See the module's description."""

    __slots__ = ("fetch_shape", "node", "produce_shape")

    def __init__(self, shared: SharedIO, server: ConnectionHost, node: Node) -> None:
        super().__init__(shared, server)
        self.node = node
        self.produce_shape: ProduceShape | None = None
        self.fetch_shape: FetchShape | None = None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.node.share_delivery.disconnected(self)

    def look_up_quotas(self) -> None:
        super().look_up_quotas()
        if self.produce_meter is not None:
            self.produce_shape = None  # its requests are counted on the slow path
