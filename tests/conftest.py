from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.postgres import Postgres, PostgresUnavailable, postgres

# How long one example takes says nothing on a shared machine.
settings.register_profile("millstream", deadline=None)
settings.load_profile("millstream")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL that the tests share: each uses a database of its own, and leaves the server running."""
    try:
        with postgres() as server:
            yield server
    except PostgresUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def database(postgres_server: Postgres) -> str:
    """The URL of a new, empty database."""
    return postgres_server.create_database(f"t_{uuid.uuid4().hex[:12]}")
