"""What ``from millstream import client`` offers programs."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from millstream import client


def test_the_names_for_programs_are_these() -> None:
    assert client.__all__ == [
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
    assert all(getattr(client, name).__name__ == name for name in client.__all__)
    with pytest.raises(AttributeError, match="transactoin"):
        client.transactoin  # noqa: B018


def test_transaction_is_the_function_whoever_imports_its_module() -> None:
    importlib.import_module("millstream.client.transaction")
    assert callable(client.transaction)


def test_importing_it_loads_no_client_library() -> None:
    program = "import sys; from millstream import client; print([m for m in sys.modules if m in %r])"
    heavy = ("confluent_kafka", "kio", "psycopg", "sqlite3")
    done = subprocess.run([sys.executable, "-c", program % (heavy,)], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
