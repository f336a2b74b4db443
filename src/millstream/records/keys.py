"""Which record of a key is the newest, and the records of a batch that are left when the others go.

``LatestOffsets`` is what compaction knows of a log's keys: a bounded table from a key's hash (128 bits, under
a secret of its own, so that no two keys share one) to the highest offset it was seen at. It works on the
records of whole batches, uncompressed:

``note(body, count, base_offset, last_delta, start)``
    Put in the keys of a batch's records, those from offset ``start`` on. False, and nothing was put in, if
    they might not fit any more.
``kept(body, count, base_offset, last_delta, base_timestamp, latest, tombstones, horizon, room)``
    The records that stay: all above offset ``latest``; below it those that are the newest of their key, if
    they have a value or ``tombstones`` are to stay. If tombstones are among them and a ``horizon`` is given,
    that becomes the base timestamp. Returns ``room`` bytes and the records, as they were, byte for byte, but
    for timestamps that are counted from another base (None: all of them, unchanged); how many; the highest
    timestamp; whether the base timestamp is the horizon now; how many went for want of a key.

Both raise CorruptBatch where a record is not one. Compiled where there was a compiler, else in plain Python;
the tests hold the two to each other.
"""

from __future__ import annotations

from contextlib import suppress

from millstream.records.plain_keys import SLOT_BYTES, LatestOffsets

__all__ = ["SLOT_BYTES", "LatestOffsets"]

with suppress(ImportError):
    from millstream.records._keys import SLOT_BYTES, LatestOffsets  # type: ignore[import-not-found, no-redef]
