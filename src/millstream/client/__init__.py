"""Access to a broker by its address: our own or Apache Kafka, told apart by nothing but that.

May import: ``records``, ``wire``. Everything above (pipeline, command line) reaches a broker only through
this package or through the Kafka protocol.

For programs: ``client.transaction`` and ``client.Transactions`` read, process and write, all or nothing;
``client.Inbox`` does it with effects in a database; ``client.TwoPhase`` decides together with another system.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not when first asked for, as the others: the module is called as its function is, and the name shall mean
# the function, whoever imports the module first. Nothing heavy comes with it.
from millstream.client.transaction import Transaction, Transactions, transaction

if TYPE_CHECKING:
    from millstream.client.connect import Connection
    from millstream.client.inbox import Inbox, Reading
    from millstream.client.position import TopicPartition
    from millstream.client.prepared import (
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
    "Outcome": "millstream.client.prepared",
    "Token": "millstream.client.prepared",
    "Reading": "millstream.client.inbox",
    "TopicPartition": "millstream.client.position",
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
