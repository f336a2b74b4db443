"""Finishes a rebuild of views after its decision. Every step may be repeated (see rebuild.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.offsets import from_json
from millstream.pipeline.run.checkpoint.checkpoint import REBUILD, Checkpoint
from millstream.pipeline.run.delivery.ledger import Ledger, LedgerEntry
from millstream.pipeline.run.delivery.transactions import QueryTransactions
from millstream.views.opening import open_store
from millstream.views.views import ViewsRebuilt, ViewStore


def settle(
    checkpoint: Checkpoint, views: str | Path, connection: Connection, *, new_ledger: bool = False
) -> bool:
    """Finish a rebuild that was decided and then cut short; leave an undecided one alone. Returns True if one
    was finished. Called before anything else is done with a checkpoint; calling it again does nothing.
    With ``new_ledger``, finishes it whatever the old job has done since."""
    new = checkpoint.of_rebuild()
    noted = checkpoint.rebuild()
    if noted is None or "entries" not in noted:
        return False
    cluster = Cluster(connection, patience=connection.patience)
    store = open_store(views)
    try:
        if not _decided(noted, cluster, store):
            return False
        if noted["guarantee"] == "exactly-once":
            _commit_rest(noted, cluster, new_ledger)
        with store.swapping(noted["views"], noted["retires"]):
            pass
        finish(checkpoint, new, noted, cluster)
        return True
    finally:
        store.close()
        cluster.close()


def _decided(noted: dict[str, Any], cluster: Cluster, store: ViewStore) -> bool:
    try:
        for query in noted["retires"]:
            store.written(query)
    except ViewsRebuilt:
        return True
    return noted["guarantee"] == "exactly-once" and any(
        _is_ours(name, entry, noted, cluster) for name, entry in _entries(noted).items()
    )


def _entries(noted: dict[str, Any]) -> dict[str, LedgerEntry]:
    return {
        name: LedgerEntry(entry["query"], entry["batch"], from_json(entry["offsets"]))
        for name, entry in noted["entries"].items()
    }


def _is_ours(name: str, entry: LedgerEntry, noted: dict[str, Any], cluster: Cluster) -> bool:
    found = Ledger(cluster, noted["groups"][name]).read({place.topic for place in entry.offsets})
    return found is not None and found.query == entry.query


def _commit_rest(noted: dict[str, Any], cluster: Cluster, new_ledger: bool) -> None:
    """Commit the ledgers that are missing: of several queries, some may not have been committed."""
    for name, entry in _entries(noted).items():
        if _is_ours(name, entry, noted, cluster):
            continue
        group = noted["groups"][name]
        transactions = QueryTransactions(cluster, group, timeout_s=60)
        transactions.take_over()
        there = Ledger(cluster, group).read({place.topic for place in entry.offsets})
        if there is not None and there.offsets != entry.offsets and not new_ledger:
            raise MillstreamError(
                "the rebuild of these views was interrupted, and the old job has continued in group"
                f" {group!r} since then: its results in the log are right, but the rebuilt views end before"
                " them. To use the rebuilt views, and write the results in between a second time, run once"
                " with --new-ledger"
            )
        transactions.begin()
        transactions.commit_offsets(group, entry.commits())
        transactions.commit()


def finish(old: Checkpoint, new: Checkpoint, noted: dict[str, Any], cluster: Cluster) -> None:
    """Write the ledger if it is not written yet, and switch the checkpoint's files."""
    if noted["guarantee"] != "exactly-once":
        for name, entry in _entries(noted).items():
            Ledger(cluster, noted["groups"][name]).write(entry)
    kept = {name: noted[name] for name in ("job", "queries", "groups", "directory")}
    if old.directory != noted["directory"]:
        kept["before"] = old.directory  # removed once the processes that may still use it have noticed
    old.note(kept)
    new.files.remove(REBUILD)
