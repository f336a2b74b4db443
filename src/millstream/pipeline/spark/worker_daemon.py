"""The daemon that Spark's Python workers on this machine are forked from, with their modules loaded.

A task has up to three workers (the source's, an operator's, the sink's). Each of them would spend one to
two seconds on importing the same modules, above all pandas, which pyarrow loads with the first value that
it gets. If the modules are loaded once, before the fork, all workers have them at once and share their
memory.
"""

from __future__ import annotations

import contextlib
import gc
from importlib import import_module

_NEEDED = (
    "pandas",  # may be missing: pyarrow works without it
    "pyarrow.compute",
    "millstream.pipeline.connector.datasource",
    "millstream.pipeline.spark.kernel_operator",
    "millstream.pipeline.run.delivery.instructions",
    "millstream.pipeline.run.delivery.sending",
)


def load() -> None:
    for name in _NEEDED:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would write to every page, and so copy it


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    manager()
