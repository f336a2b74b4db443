"""The offsets at which leader epochs began, from which OffsetForLeaderEpoch is answered.

They are kept in Kafka's ``leader-epoch-checkpoint``, one line ``epoch offset`` each. An epoch ends where
the next one begins. After a crash, a partition continues in a new epoch. A reader that had seen records
which the crash destroyed finds out by asking where its epoch ended.

The latest epoch never goes back, whatever happens to its records. Clients compare positions by epoch before
they compare offsets: a consumer that has committed under epoch 3 does not commit again under epoch 1.
"""

from __future__ import annotations

from millstream.log.storage.checkpoints import checkpoint_entries, checkpoint_text, read_lines, write_lines
from millstream.log.storage.files import Files

CHECKPOINT = "leader-epoch-checkpoint"
NONE = (-1, -1)


class LeaderEpochs:
    """The epochs of one partition, oldest first."""

    __slots__ = ("_entries", "_files", "_path", "_written")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{CHECKPOINT}"
        self._entries: list[tuple[int, int]] = []
        self._written: list[tuple[int, int]] = []  # what the checkpoint contains

    def load(self) -> None:
        self._entries = _in_order(read_lines(self._files, self._path) or [])
        self._written = list(self._entries)

    @property
    def is_written(self) -> bool:
        """True if the checkpoint contains all that is known here."""
        return self._entries == self._written

    def write(self, *, sync: bool = False) -> None:
        """Write the checkpoint. Without ``sync``, a crash may lose the newest epoch, but the batches name
        it too."""
        write_lines(
            self._files, self._path, [f"{epoch} {offset}" for epoch, offset in self._entries], sync=sync
        )
        self._written = list(self._entries)

    def text_upto(self, offset: int) -> bytes:
        """The checkpoint's contents for a log that ends at ``offset``."""
        return checkpoint_text([f"{epoch} {start}" for epoch, start in self._entries if start < offset])

    def put_before(self, text: bytes) -> None:
        """Add the epochs of records older than all that is known here, in the format of ``text_upto``."""
        older = _in_order(checkpoint_entries(text) or [])
        if older:
            self._entries = older + [entry for entry in self._entries if entry[0] > older[-1][0]]

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset), oldest first."""
        return list(self._entries)

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Take over the epochs of the leader's log, which this log copies."""
        self._entries = list(entries)

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else 0

    def begin(self, epoch: int, offset: int) -> bool:
        """Start ``epoch`` at ``offset``; False if it is not newer than the latest."""
        if self._entries and epoch <= self._entries[-1][0]:
            return False
        while self._entries and self._entries[-1][1] >= offset:
            self._entries.pop()  # it has no records
        self._entries.append((epoch, offset))
        return True

    def cut_end(self, offset: int) -> None:
        """Move the end of the log back to ``offset``, where it continues in the latest epoch."""
        latest = self._entries[-1:]
        self._entries = [entry for entry in self._entries if entry[1] < offset]
        if latest and self._entries[-1:] != latest:
            self._entries.append((latest[0][0], offset))

    def cut_start(self, offset: int) -> None:
        """Move the start of the log to ``offset``. The epoch that contains it begins there."""
        older = [entry for entry in self._entries if entry[1] <= offset]
        if older:
            self._entries = [(older[-1][0], offset), *self._entries[len(older) :]]

    def at(self, offset: int) -> int:
        """The epoch in which an offset was assigned, or will be."""
        return next((epoch for epoch, start in reversed(self._entries) if start <= offset), self.latest)

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch not above ``epoch``. (-1, -1) for a future epoch, and
        for -1, by which a client says that it knows of none."""
        if epoch == self.latest:
            return epoch, end_offset
        if epoch > self.latest or epoch == NONE[0]:
            return NONE
        below = -1
        for known, offset in self._entries:
            if known > epoch:
                return (below if below >= 0 else epoch), offset
            below = known
        return NONE


def _in_order(lines: list[list[str]]) -> list[tuple[int, int]]:
    """Epochs and their first offsets. Entries that are out of order are left out."""
    entries: list[tuple[int, int]] = []
    for words in lines:
        if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit():
            continue
        epoch, offset = int(words[0]), int(words[1])
        if not entries or (epoch > entries[-1][0] and offset >= entries[-1][1]):
            entries.append((epoch, offset))
    return entries
