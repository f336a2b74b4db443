"""Finds the newest record of each key, and keeps a batch's records that are still the newest.

``LatestOffsets`` is what compaction knows of a log's keys. It is a bounded table from a key's hash to the
highest offset at which the key was seen. The hash has 128 bits and uses a secret of its table, so no two
keys share one. The table works on the uncompressed records of whole batches:

``note(body, count, base_offset, last_delta, start)``
    Add the keys of a batch's records from offset ``start`` on. False, with nothing added, if they might no
    longer fit.
``kept(body, count, base_offset, last_delta, base_timestamp, latest, tombstones, horizon, room)``
    Keep all records above offset ``latest``, and of the others those that are the newest of their key, if
    they have a value or ``tombstones`` are to stay. If tombstones are kept and a ``horizon`` is given, it
    becomes the base timestamp. Returns ``room`` bytes followed by the records, byte for byte, except for
    timestamps that count from another base (None: all records stay, unchanged); how many; the highest
    timestamp; whether the base timestamp is now the horizon; how many were removed because they have no key.

Both raise CorruptBatch for an invalid record. Compiled if there was a compiler, otherwise in plain Python.
The tests compare the two.
"""

from __future__ import annotations

from contextlib import suppress

from millstream.records.keys.plain import SLOT_BYTES, LatestOffsets

__all__ = ["SLOT_BYTES", "LatestOffsets"]

with suppress(ImportError):
    from millstream.records.keys._keys import SLOT_BYTES, LatestOffsets  # type: ignore[import-not-found, no-redef]
