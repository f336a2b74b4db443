"""What is installed only where it is asked for, and what to say where it is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from millstream.errors import ConfigError


@contextmanager
def extra(name: str, modules: Collection[str], who: str) -> Iterator[None]:
    """Says what to install where an import within fails because one of ``modules`` is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in modules:
            raise
        raise ConfigError(
            f"{who} {error.name}, which is not installed: pip install 'millstream[{name}]'"
        ) from None
