"""Where state may be kept, by address: in memory, on disk, in PostgreSQL or in Cassandra."""

from __future__ import annotations

from millstream.core.errors import ConfigError
from millstream.pipeline.kernel.state.table import StateTable, TableId

MEMORY, DISK = "memory", "disk"


def reach(state: str) -> None:
    """Check that a database can be reached, and create its tables."""
    if state.startswith("cassandra://"):
        from millstream.pipeline.kernel.state.cassandra import session

        session(state)
    else:
        from millstream.pipeline.kernel.state.postgres import connection

        connection(state)


def open_table(state: str, space: TableId, run: str) -> StateTable | None:
    """Open the table for a bucket's state; None for state in memory. ``run`` names a run of a job."""
    if state == MEMORY:
        return None
    if state == DISK:
        from millstream.pipeline.kernel.state.disk import DiskTable, local_directory

        return DiskTable(local_directory(run), space)
    if state.startswith(("postgresql://", "postgres://")):
        from millstream.pipeline.kernel.state.postgres import PostgresTable

        return PostgresTable(state, space)
    if state.startswith("cassandra://"):
        from millstream.pipeline.kernel.state.cassandra import CassandraTable

        return CassandraTable(state, space)
    raise ConfigError(f"state={state!r} is not 'memory', 'disk', postgresql://... or cassandra://...")
