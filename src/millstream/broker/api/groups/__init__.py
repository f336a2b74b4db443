"""The requests of groups: of each kind of group, and for committed offsets. May import what ``broker.api``
may. Start with ``classic``, which also has what is the same for all kinds.
"""

from __future__ import annotations

from millstream.broker.api.groups import classic, committed_offsets, consumer, share, share_offsets

__all__ = ["classic", "committed_offsets", "consumer", "share", "share_offsets"]
