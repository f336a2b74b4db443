"""What a failing disk does to a log: which errors are temporary, and which stop its writes for good.

- A full disk, a quota or a lack of descriptors is *temporary*: the refused write is undone, and the next
  one is tried.
- Anything else, above all a failed sync, is *for good*: the operating system may have dropped what it could
  not write, and would report the next sync as a success (fail-stop). Only a restart with recovery continues.

After a failed sync, the file's pages in memory are correct and count as written, although the disk never
got them. A process that reads them back finds nothing wrong, until the machine loses power or needs the
memory. If it needs the memory, any of these pages may later be read from the disk in its old state, with
correct pages after it.

So a log whose sync failed leaves a mark with the offset up to which syncs had succeeded. Recovery keeps
what follows that offset only up to the first damaged batch: no sync has promised any of it, producers
send again what was not acknowledged, and a hole between records would hold up every reader. Recovery
writes what it keeps once more before it trusts it. The mark is not synced: if the machine itself went
down, those pages are gone too.
"""

from __future__ import annotations

import contextlib
import errno
import logging

from millstream.core.errors import LogError, LogFailed, LogOffline, OffsetOutOfRange
from millstream.log.state import LogState
from millstream.log.storage.files import File, Files

_log = logging.getLogger(__name__)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
UNREADABLE = (errno.ENOTDIR, errno.EIO)  # damage to one partition that leaves the others intact
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
PASSING = (*NO_ROOM, *_NO_DESCRIPTOR, errno.ENOMEM)
_MARK = ".sync-failed"
_PIECE = 1 << 20


def fail(log: LogState, what: str) -> LogFailed:
    """Stop the log's writes for good."""
    failure = LogFailed(f"{log.name}: {what}")
    log.stop_for_good(failure)
    _log.error("%s", failure)
    return failure


def out_of_range(log: LogState, offset: int) -> LogError:
    """The error for a read of an offset that the log does not have."""
    if log.offline is not None:
        return LogOffline(str(log.offline))
    return OffsetOutOfRange(
        f"{log.name} has offsets {log.log_start_offset} to {log.end_offset}, not {offset}"
    )


def refused(log: LogState, action: str, error: OSError) -> LogFailed:
    """The exception to raise when the disk refused something. Stops the log if the error is not temporary."""
    what = f"can't {action}: {error.strerror or error}"
    if log.failed is not None:
        return log.failed
    if error.errno not in PASSING:
        return fail(log, f"{what}; no more writes are accepted. Check the disk, then restart the broker.")
    if error.errno in NO_ROOM:
        log.pool.out_of_room()
    _log.error("%s: %s", log.name, what)
    return LogFailed(f"{log.name}: {what}")


def sync_failed(log: LogState, error: OSError) -> LogFailed:
    """The exception to raise when a sync failed. From any thread."""
    if error.errno in _NO_DESCRIPTOR:
        # The file could not even be opened, so none of its pages was dropped: the next sync writes them all.
        _log.error("%s: can't sync: %s", log.name, error.strerror or error)
        return LogFailed(f"{log.name}: can't sync: {error.strerror or error}")
    with contextlib.suppress(OSError):  # the disk may refuse this too
        mark = log.pool.files.open(f"{log.path}/{_MARK}", create=True)
        mark.pwrite(f"{log.synced_offset:020d}".encode(), 0)
    return fail(
        log,
        f"the disk failed to sync ({error.strerror or error}); no more writes are accepted,"
        " because the content of the disk is unknown. Check the disk, then restart the broker.",
    )


def is_marked(files: Files, path: str) -> bool:
    """True if a sync of the log in this directory failed, and the log was not recovered since."""
    return files.exists(f"{path}/{_MARK}")


def synced_before_failure(files: Files, path: str) -> int | None:
    """The offset up to which a marked log was synced; None if the disk refused to store that too."""
    text = files.open(f"{path}/{_MARK}").pread(20, 0)
    return int(text) if len(text) == 20 and text.isdigit() else None


def unmark(files: Files, path: str) -> None:
    files.remove(f"{path}/{_MARK}")


def write_again(file: File) -> None:
    """Make the next sync write the whole file, including pages that count as written."""
    for position in range(0, file.size(), _PIECE):
        file.pwrite(file.pread(_PIECE, position), position)
