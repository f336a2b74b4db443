"""What a disk that refuses does to a log: which errors pass, and which end its writing for good.

- A full disk, a quota, a lack of descriptors *passes*: what was refused is undone, and the next is tried.
- Anything else, above all a sync that fails, is *for good*: the operating system may have dropped what it
  could not write and would call the next sync a success (fail-stop). Only a restart with recovery goes on.

After a failed sync the file's pages in memory are right and count as written, though the disk never got them:
a process that reads them back finds nothing wrong, until the machine loses power. So a log whose sync failed
leaves a mark, and recovery writes what no sync had covered once more before it is believed. The mark is not
synced: where the machine itself went down, so did those pages.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from typing import TYPE_CHECKING

from millstream.errors import LogFailed

if TYPE_CHECKING:
    from millstream.log.files import File, Files
    from millstream.log.partition import PartitionLog

_log = logging.getLogger(__name__)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
PASSING = (*NO_ROOM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_MARK = ".sync-failed"
_PIECE = 1 << 20


def fail(log: PartitionLog, what: str) -> LogFailed:
    """The log takes no more writes, for good."""
    failure = LogFailed(f"{log.name}: {what}")
    log.stop_for_good(failure)
    _log.error("%s", failure)
    return failure


def refused(log: PartitionLog, action: str, error: OSError) -> LogFailed:
    """The disk refused something: what to raise. The log is stopped if that does not pass."""
    what = f"can't {action}: {error.strerror or error}"
    if log.failed is not None:
        return log.failed
    if error.errno not in PASSING:
        return fail(log, f"{what}; no more writes are taken. Check the disk, then restart the broker.")
    if error.errno in NO_ROOM:
        log.pool.out_of_room()
    _log.error("%s: %s", log.name, what)
    return LogFailed(f"{log.name}: {what}")


def sync_failed(log: PartitionLog, error: OSError) -> LogFailed:
    """A sync failed: what to raise. From any thread."""
    with contextlib.suppress(OSError):  # on a disk in that state
        log.pool.files.open(f"{log.path}/{_MARK}", create=True)
    return fail(
        log,
        f"the disk failed to sync ({error.strerror or error}); no more writes are taken, as what it holds is "
        "not known. Check the disk, then restart the broker.",
    )


def is_marked(files: Files, path: str) -> bool:
    """A sync of the log in this directory failed, and nobody has recovered it since."""
    return files.exists(f"{path}/{_MARK}")


def unmark(files: Files, path: str) -> None:
    files.remove(f"{path}/{_MARK}")


def write_again(file: File) -> None:
    """Have the next sync write all of a file, also what counts as written."""
    for position in range(0, file.size(), _PIECE):
        file.pwrite(file.pread(_PIECE, position), position)
