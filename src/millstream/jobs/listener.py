"""Follows the topic of commands for one run of a job, on a thread.

A request waits at the broker for seconds until a command comes, so a command arrives at once, and a job that
gets none spends almost nothing on it. While the broker is away, the listener tries again every few seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.partition_fetcher import PartitionFetcher
from millstream.client.text.position import TopicPartition
from millstream.core.errors import DataLoss, MillstreamError
from millstream.jobs.command import TOPIC, Command, decoded

_log = logging.getLogger(__name__)
_WAIT_MS = 5000  # of one request at the broker
_PAUSE_S = 2.0  # after an error


class CommandListener(threading.Thread):
    """Calls ``take`` with each command for the run ``run``. ``open`` must come before the run is reported:
    only commands that are given later are read."""

    def __init__(self, connection: Connection, run: str, take: Callable[[Command], None]) -> None:
        super().__init__(name="job-commands", daemon=True)
        self._wait_ms = min(_WAIT_MS, round(500 * connection.patience))
        self._cluster = Cluster(connection, patience=0)
        self._reader = PartitionFetcher(self._cluster, TopicPartition(TOPIC, 0))
        self._run_id = run
        self._take = take
        self._ended = threading.Event()

    def open(self) -> None:
        """Go to the end of the topic. Raises MillstreamError if it can't be read."""
        self._reader.to_end()
        self.start()

    def end(self) -> None:
        """Take no more commands. The thread ends with its current request."""
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except DataLoss:
                self._reader.position = None  # created again: commands for other runs don't matter
            except MillstreamError as error:
                _log.debug("commands can't be read now: %s", error)
                self._ended.wait(_PAUSE_S)
        self._cluster.close()

    def _follow(self) -> None:
        for record in self._reader.read(self._wait_ms):
            command = decoded(record.value)
            if command is not None and command.run == self._run_id and not self._ended.is_set():
                self._take(command)
