"""Access to a broker by its address: millstream's own or Apache Kafka, with no difference but the address.
May import ``core``, ``records`` and ``wire``; everything above it (pipeline, command line) reaches a broker
only through this package or the Kafka protocol. Start with ``connect`` (an address and how to connect) and
``transaction`` (read, process and write, all or nothing). ``Inbox`` does the same with effects in a database,
and ``TwoPhase`` commits together with another system.
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
    from millstream.client.text.position import TopicPartition
    from millstream.client.two_phase import (
        Outcome,
        Token,
        TwoPhase,
        abort_prepared,
        commit_prepared,
        list_prepared,
    )

_PUBLIC = {
    "Connection": "millstream.client.connect",
    "Inbox": "millstream.client.inbox",
    "Outcome": "millstream.client.two_phase",
    "Token": "millstream.client.two_phase",
    "Reading": "millstream.client.inbox",
    "TopicPartition": "millstream.client.text.position",
    "TwoPhase": "millstream.client.two_phase",
    "abort_prepared": "millstream.client.two_phase",
    "commit_prepared": "millstream.client.two_phase",
    "list_prepared": "millstream.client.two_phase",
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
