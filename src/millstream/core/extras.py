"""Optional dependencies, and what to say if one is not installed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from millstream.core.errors import ConfigError

_PIPELINES = ("numpy", "pandas", "pyarrow", "pyspark", "py4j")


def spark_extra() -> AbstractContextManager[None]:
    """Put around imports of pipelines."""
    return extra("spark", _PIPELINES, "pipelines need")


def testing_extra() -> AbstractContextManager[None]:
    """Put around imports of the test driver. It needs PySpark's classes, but none of its Java."""
    return extra("testing", _PIPELINES, "the test driver needs")


def how_to_install(error: Exception) -> str:
    """What to add to the error of a pipeline's own file that imports a package of an extra."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return "; it comes with: pip install 'millstream[spark]'" if module in _PIPELINES else ""


@contextmanager
def extra(name: str, modules: Collection[str], who: str) -> Iterator[None]:
    """Says what to install if an import within fails because one of ``modules`` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in modules:
            raise
        raise ConfigError(
            f"{who} {error.name}, which is not installed: pip install 'millstream[{name}]'"
        ) from None
