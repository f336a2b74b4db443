"""What outlives a task: connections, and the modules it has loaded.

Spark keeps its Python workers between tasks and micro-batches. What they opened is kept here with them, so
that a small micro-batch does not pay for connecting, and so that a sink does not leave a new producer id
behind on the broker for every task.
"""

from __future__ import annotations

import gc
import os

from millstream.client.cluster import Cluster
from millstream.client.connect import Connection
from millstream.client.sender import Sender
from millstream.pipeline.options import WriteOptions

_Key = tuple[object, ...]

_clusters: dict[_Key, Cluster] = {}
_senders: dict[_Key, Sender] = {}


_frozen_in: int | None = None


def keep_loaded() -> None:
    """At the end of a worker's first task: tell the garbage collector that what is loaded stays. Spark has it
    go through everything after every task, which for all these modules takes some 25 ms, and a micro-batch
    has about ten tasks."""
    global _frozen_in
    if _frozen_in != os.getpid():
        gc.collect()
        gc.freeze()
        _frozen_in = os.getpid()


def _key(connection: Connection) -> _Key:
    # The process is part of it: a fork must not share its parent's sockets.
    return (os.getpid(), connection.address, *sorted(connection.options.items()))


def shared_cluster(connection: Connection) -> Cluster:
    """This process's access to the brokers behind a connection."""
    key = _key(connection)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(connection, patience=connection.patience)
    return cluster


def shared_sender(options: WriteOptions) -> Sender:
    """This process's sender with these options; a new one after one has failed."""
    key = (*_key(options.connection), options.acks, options.idempotent)
    sender = _senders.get(key)
    if sender is not None and sender.failed:
        sender.close()
        sender = None
    if sender is None:
        cluster = Cluster(options.connection, patience=options.connection.patience)
        timeout_ms = round(1000 * options.connection.patience)
        sender = Sender(cluster, acks=options.acks, timeout_ms=timeout_ms, idempotent=options.idempotent)
        _senders[key] = sender
    return sender
