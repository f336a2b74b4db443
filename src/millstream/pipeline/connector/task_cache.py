"""Keeps what outlives a task in a Spark worker: connections, and the modules that it has loaded.

Spark keeps its Python workers between tasks and micro-batches, and their connections stay open here. So a
small micro-batch does not pay for connecting, and a sink does not leave a new producer id on the broker for
every task.
"""

from __future__ import annotations

import gc
import os

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.sender import BatchSender
from millstream.pipeline.connector.options import WriteOptions

_Key = tuple[object, ...]

_clusters: dict[_Key, Cluster] = {}
_senders: dict[_Key, BatchSender] = {}


_frozen_in: int | None = None


def keep_loaded() -> None:
    """Exempt what is loaded from garbage collection, at the end of a worker's first task. Spark runs a full
    collection after every task. For all these modules that takes about 25 ms, and a micro-batch has about
    ten tasks."""
    global _frozen_in
    if _frozen_in != os.getpid():
        gc.collect()
        gc.freeze()
        _frozen_in = os.getpid()


def _key(connection: Connection) -> _Key:
    # The process id is part of the key: a forked process must not share its parent's sockets.
    return (os.getpid(), connection.address, *sorted(connection.options.items()))


def shared_cluster(connection: Connection) -> Cluster:
    """This process's one Cluster for the brokers behind a connection."""
    key = _key(connection)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(connection, patience=connection.patience)
    return cluster


def shared_sender(options: WriteOptions) -> BatchSender:
    """This process's one sender with these options; a new one after a failure."""
    key = (*_key(options.connection), options.acks, options.idempotent)
    sender = _senders.get(key)
    if sender is not None and sender.failed:
        sender.close()
        sender = None
    if sender is None:
        cluster = Cluster(options.connection, patience=options.connection.patience)
        timeout_ms = round(1000 * options.connection.patience)
        sender = BatchSender(cluster, acks=options.acks, timeout_ms=timeout_ms, idempotent=options.idempotent)
        _senders[key] = sender
    return sender
