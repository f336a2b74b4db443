"""The settings of one share group that its delivery depends on."""

from __future__ import annotations

import math
from typing import NamedTuple

LATEST, EARLIEST = "latest", "earliest"  # of auto_offset_reset; else by_duration:PERIOD, in ISO 8601


class ShareSettings(NamedTuple):
    """With Kafka's defaults. The names are those of the group's settings, without ``share.``."""

    record_lock_duration_ms: int = 30_000  # a record that is not acknowledged in time is given out again
    delivery_count_limit: int = 5  # deliveries of a record, after which it is given up
    partition_max_record_locks: int = (
        2000  # unfinished records of a partition at which no new one is given out
    )
    auto_offset_reset: str = LATEST
    read_committed: bool = False  # leave out the records of aborted and open transactions
    renew_acknowledge_enable: bool = True

    @property
    def halved_from(self) -> int:
        """From this number of deliveries on, records are given out in half the batch each time, so that a
        record that kills its consumer ends up alone."""
        return max(2, math.ceil(self.delivery_count_limit / 2))
