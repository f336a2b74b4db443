"""Compacts a log immediately, in the test's thread, for tests of the result."""

from __future__ import annotations

from collections.abc import Callable

from millstream.log.compaction.single_pass import PassResult, SegmentGroup, compact
from millstream.log.partition import PartitionLog

MEMORY = 1 << 20


def compact_now(
    log: PartitionLog,
    now_ms: int,
    *,
    memory: int = MEMORY,
    passes: int = 50,
    step: Callable[[], None] = lambda: None,
) -> list[PassResult]:
    """Compact everything that may be compacted, however little it is, and return what each pass reports.
    ``step`` is called between the steps of every swap.
    """
    files = log.pool.files
    done: list[PassResult] = []
    for _ in range(passes):
        dirt = log.compaction.look(now_ms)
        job = log.compaction.job(dirt, now_ms, memory)
        if dirt.dirty_bytes == 0 or job is None:
            break
        for event in compact(files, job):
            step()
            if isinstance(event, SegmentGroup):
                if event.is_changed:
                    put_in_place(log, event, step)
                continue
            log.compaction.finished(event, now_ms)
            step()
            log.compaction.save()
            done.append(event)
    return done


def put_in_place(log: PartitionLog, group: SegmentGroup, step: Callable[[], None] = lambda: None) -> None:
    swap = log.compaction.begin(group)
    assert swap is not None
    swap.prepare()
    swap.commit()
    step()
    swap.swap()
    step()
    log.pool.files.sync_directory(log.path)
    step()
    swap.settle()
    step()
    log.pool.files.sync_directory(log.path)
