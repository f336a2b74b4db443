"""Access to a broker by its address: millstream's own or Apache Kafka, with no difference but the address.
May import ``core``, ``records`` and ``wire``; everything above it (pipeline, command line) reaches a broker
only through this package or the Kafka protocol. Programs start with ``client.transaction`` and
``client.Transactions``, which read, process and write, all or nothing. ``client.Inbox`` does the same with
effects in a database, and ``client.TwoPhase`` commits together with another system.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Imported eagerly, unlike the others: the module has the same name as its function, and the name must mean
# the function no matter who imports the module first. It pulls in nothing heavy.
from millstream.client.transaction import Transaction, Transactions, transaction

if TYPE_CHECKING:
    from millstream.client.connect import Connection
    from millstream.client.inbox import Inbox, Reading
    from millstream.client.prepared import (
        Outcome,
        Token,
        TwoPhase,
        abort_prepared,
        commit_prepared,
        list_prepared,
    )
    from millstream.client.text.position import TopicPartition

_PUBLIC = {
    "Connection": "millstream.client.connect",
    "Inbox": "millstream.client.inbox",
    "Outcome": "millstream.client.prepared",
    "Token": "millstream.client.prepared",
    "Reading": "millstream.client.inbox",
    "TopicPartition": "millstream.client.text.position",
    "TwoPhase": "millstream.client.prepared",
    "abort_prepared": "millstream.client.prepared",
    "commit_prepared": "millstream.client.prepared",
    "list_prepared": "millstream.client.prepared",
}

__all__ = [
    "Connection",
    "Inbox",
    "Outcome",
    "Reading",
    "Token",
    "TopicPartition",
    "Transaction",
    "Transactions",
    "TwoPhase",
    "abort_prepared",
    "commit_prepared",
    "list_prepared",
    "transaction",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'millstream.client' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
