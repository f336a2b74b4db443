"""Which jobs run in this process: no two under one name, and no two on one checkpoint.

Jobs of one name share a consumer group and transactional ids, so the later one would end the earlier one. In
another process that is how a job is taken over, and on purpose. In one process it is a mistake.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.core.errors import ConfigError
from millstream.pipeline.run.checkpoint.files import CheckpointFiles

_lock = threading.Lock()
_running: dict[str, str] = {}  # by name of the job, its checkpoint


@contextmanager
def claimed(name: str, checkpoint: str) -> Iterator[None]:
    """Within the block, this process runs the job. Raises ConfigError if it does so already."""
    files = CheckpointFiles(checkpoint)
    place = files.location if files.local is None else str(files.local.resolve())
    with _lock:
        if name in _running:
            raise ConfigError(
                f"the job {name!r} is running in this process already, on the checkpoint {_running[name]}."
                " Stop it first, or give this topology another name"
            )
        for other, used in _running.items():
            if used == place:
                raise ConfigError(
                    f"the checkpoint {place} is in use by the job {other!r}, which is running in this"
                    " process. Every job needs a checkpoint of its own"
                )
        _running[name] = place
    try:
        yield
    finally:
        with _lock:
            del _running[name]
