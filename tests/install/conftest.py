from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.environments import Environment, environment, wheel

# Half a gigabyte from the package index, and minutes: `make installs`, and not in `make test`.
collect_ignore = [] if os.environ.get("MILLSTREAM_INSTALLS") else ["test_extras.py", "test_compiled.py"]


@pytest.fixture(scope="session")
def plain_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built on a machine without a C compiler."""
    return wheel(tmp_path_factory.mktemp("plain"), compiler=False)


@pytest.fixture(scope="session")
def base(plain_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """``pip install millstream``, without a compiler and without an extra."""
    return environment(tmp_path_factory.mktemp("base") / "env", plain_wheel)
