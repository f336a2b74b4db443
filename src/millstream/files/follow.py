"""Following log files through rotation, truncation and compression: every line once.

Rule 1: a content is read once, wherever it is. What is known is where each content was read to (``Mark``); a
file is looked at for the content it holds, and a content that is not known is new and read from its start.
Rule 2: the file under the name that is written is known by its inode, and only by it: two days may begin with
the same line. What rotation made of it is known by its content too: it may be a copy, or compressed.
Rule 3: older files of a family are read to their end before newer ones are begun.

What happens to a file, and what comes of it:

    renamed, a new one made         the old one is known by its inode and read to its end; the new one is new
    copied, then truncated          the inode holds other bytes than it did: new content; the rest of the old
                                    one is read from the copy
    truncated                       the same, and there is no copy: what had not been read is gone, and said
    compressed                      known by its content; read on from there after decompression
    copied or compressed just now   begins like a known content and is shorter than that was read, or like the
                                    file that is written: waited for
    deleted                         read to its end while it is open here, then forgotten

A last line without a line feed is waited for while somebody may be writing it: taken from a file that was
rotated away and is not written any more, or, if reading ends there (``once``), from one that nobody has
written for a second.

Files are polled. State is in memory: ``Tracked`` and its marks, which whoever sends the lines keeps in a safe
place (``files.progress``) and gives back after a restart.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.clock import Clock
from millstream.files.content import (
    HEAD,
    START,
    BrokenContent,
    Content,
    Mark,
    Place,
    PlainContent,
    end_of,
    holds_all,
    may_become,
    open_content,
    still_holds,
)
from millstream.files.rotation import Candidate, candidates

log = logging.getLogger(__name__)

CHUNK = 1 << 18
LONGEST_LINE = 900_000  # bytes; the largest record that clients and brokers take by default is a little more
_QUIET_MS = 5000  # a rotated file that was not written for so long has its last line
_QUIET_ONCE_MS = 1000
_FORGET_AFTER = 10.0  # seconds that a file is away, and if it is open here was not written, to be gone


class Line(NamedTuple):
    """``piece`` counts the parts of a line too long for one record, from 1; 0 is a whole line."""

    data: bytes
    piece: int = 0


@dataclass(slots=True, eq=False)
class Tracked:
    """One content: where it is and how far it was read. ``order`` is that of being found."""

    id: str
    family: str
    place: Place
    mark: Mark = START
    order: int = 0
    piece: int = 0  # of an overlong line, how many parts were taken
    whole: bool = False  # compressed, and read to its end
    content: Content | None = None
    rest: bytes = b""  # of a line whose end has not come yet; stands after the mark
    before: bytes = b""  # up to HEAD bytes before the mark
    gone_since: float | None = None
    complained: bool = False

    @property
    def position(self) -> int:
        return self.mark.offset + len(self.rest)

    def let_go(self) -> None:
        if self.content is not None:
            self.content.close()
            self.content = None
        self.rest = b""


class Read(NamedTuple):
    """Lines of one file; its tracking stands after them."""

    tracked: Tracked
    lines: list[Line]


@dataclass(slots=True)
class Follower:
    """The files of some patterns. ``known`` is what was tracked before a restart, and ``begun`` says that
    there was a look before.

    ``from_start``: how files are begun that patterns name and that are there at the very first look; others
    that are there then are not read, and what comes later always is.
    ``complain`` is told what a person should know: in a sentence."""

    patterns: Sequence[str]
    clock: Clock
    known: Iterable[Tracked] = ()
    begun: bool = False
    from_start: bool = False
    once: bool = False
    longest: int = LONGEST_LINE
    complain: Callable[[str], None] = log.warning
    tracked: list[Tracked] = field(default_factory=list)
    forgotten: list[Tracked] = field(default_factory=list)  # whose progress nobody needs any more
    _verdicts: dict[tuple[Place, str, int], str] = field(default_factory=dict)
    _first_look: bool = True
    _waiting: bool = False

    def __post_init__(self) -> None:
        self.tracked = sorted(self.known, key=lambda each: each.order)
        self._first_look = not self.begun

    def close(self) -> None:
        for tracked in self.tracked:
            tracked.let_go()

    # Finding files -------------------------------------------------------------------------------------

    def look(self) -> list[Tracked]:
        """Find the files again, under whatever names; those that are new are returned."""
        there = candidates(self.patterns)
        by_file = {each.place.file: each for each in reversed(there)}
        claimed: set[tuple[int, int]] = set()
        homeless = []
        for tracked in self.tracked:
            found = by_file.get(tracked.place.file)
            if found is not None and found.place.file not in claimed and self._holds(found.place, tracked):
                claimed.add(found.place.file)
                tracked.place, tracked.gone_since = found.place, None
            else:
                homeless.append((tracked, found is not None))
        free = [each for each in there if each.place.file not in claimed]
        for tracked, inode_is_there in homeless:
            moved = self._moved(tracked, free)
            if moved is not None:
                tracked.let_go()
                tracked.place, tracked.gone_since = moved.place, None
                claimed.add(moved.place.file)
                free.remove(moved)
            else:
                self._gone(tracked, free, replaced=inode_is_there)
        written = {each.family: each.place for each in there if not each.rotated}
        fresh = [
            self._track(each)
            for each in free
            if not each.rotated or not self._known_content(each, written.get(each.family))
        ]
        self._first_look = False
        self._verdicts = {
            key: verdict for key, verdict in self._verdicts.items() if key[0] in {e.place for e in there}
        }
        return fresh

    def _holds(self, place: Place, tracked: Tracked) -> bool:
        if place == tracked.place and tracked.content is not None:
            return True
        if tracked.whole and place.file == tracked.place.file:
            return True
        if tracked.mark.offset == 0 and tracked.content is None:
            # Nothing is known of its content, and an inode is used again once its file is deleted.
            return place.path == tracked.place.path == tracked.family
        return self._verdict(place, tracked) == "same"

    def _verdict(self, place: Place, tracked: Tracked) -> str:
        """``same`` content, ``perhaps`` (a copy that is not complete), or ``other``."""
        key = (place, tracked.id, tracked.mark.offset)
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self._compare(place, tracked)
        return known

    def _compare(self, place: Place, tracked: Tracked) -> str:
        try:
            content = open_content(place)
        except OSError:
            return "perhaps"
        try:
            if still_holds(content, tracked.mark):
                return "same"
            return "perhaps" if may_become(content, tracked.mark) else "other"
        except BrokenContent:
            return "perhaps"
        except OSError:
            return "perhaps"
        finally:
            content.close()

    def _moved(self, tracked: Tracked, free: Iterable[Candidate]) -> Candidate | None:
        if tracked.mark.offset == 0:
            return None  # nothing was read of it, so nothing is known of its content
        for each in free:
            if (
                each.rotated
                and each.family == tracked.family
                and self._verdict(each.place, tracked) == "same"
            ):
                return each
        return None

    def _known_content(self, rotated: Candidate, written: Place | None) -> bool:
        """Whether this is a copy of what is tracked, or on its way to become one; or a copy of the file that
        is ``written`` or of one that is open here, of which nothing may have been read yet."""
        unread = []
        for tracked in self.tracked:
            if tracked.family != rotated.family:
                continue
            if tracked.mark.offset == 0:
                unread.append(tracked.content)
            elif self._verdict(rotated.place, tracked) != "other":
                return True
        try:
            end = end_of(rotated.place)
            if any(content is not None and holds_all(content, end) for content in unread):
                return True
            if written is None:
                return False
            content = open_content(written)
        except OSError:
            return False
        try:
            return holds_all(content, end)
        except OSError:
            return False
        finally:
            content.close()

    def _gone(self, tracked: Tracked, free: Iterable[Candidate], *, replaced: bool) -> None:
        """A tracked content is nowhere to be found by name. It may be between two names at this moment: it is
        forgotten only if it stays away."""
        now = self.clock.monotonic()
        content = tracked.content
        if isinstance(content, PlainContent) and still_holds(content, tracked.mark):
            # Deleted or moved away, and open here: there may be more to read.
            tracked.place = content.place()._replace(path=tracked.place.path)
            if tracked.place.size > tracked.position:
                tracked.gone_since = now
        else:
            tracked.let_go()
            if any(
                each.family == tracked.family
                and each.rotated
                and self._verdict(each.place, tracked) == "perhaps"
                for each in free
            ):
                # A copy that ends before what was read here; known as long as that is there.
                tracked.gone_since = now
        if tracked.gone_since is None:
            tracked.gone_since = now
        unread = tracked.mark.offset == 0 and tracked.content is None
        if now - tracked.gone_since < _FORGET_AFTER and not unread:
            return
        if tracked.content is None and not tracked.whole and not unread:
            self._say_gone(tracked, replaced=replaced)
        tracked.let_go()
        self.tracked.remove(tracked)
        self.forgotten.append(tracked)

    def _say_gone(self, tracked: Tracked, *, replaced: bool) -> None:
        path = tracked.place.path
        unread = 0 if tracked.place.compressed else tracked.place.size - tracked.position
        if unread > 0:
            how = "truncated" if replaced else "gone"
            self.complain(f"{path}: {how} before its last {unread:,} bytes were read")
        elif path == tracked.family and not replaced:
            self.complain(
                f"{path}: the file that was read up to byte {tracked.mark.offset:,} is gone; what was written"
                " to it after that was not read"
            )

    def _track(self, candidate: Candidate) -> Tracked:
        order = max((each.order for each in self.tracked), default=0) + 1
        tracked = Tracked(uuid.uuid4().hex, candidate.family, candidate.place, order=order)
        if self._first_look and not (self.from_start and candidate.named):
            self._begin_at_end(tracked)
        self.tracked.append(tracked)
        return tracked

    def _begin_at_end(self, tracked: Tracked) -> None:
        place = tracked.place
        try:
            content = open_content(place)
        except OSError:
            return
        try:
            head = content.read(0, HEAD)
            if place.compressed:
                tracked.mark, tracked.whole = Mark.at(len(head), head, head), True
                return
            last = content.read(max(0, place.size - CHUNK), CHUNK)
            unfinished = len(last) - (last.rfind(b"\n") + 1)
            offset = place.size - (unfinished if unfinished < len(last) or place.size <= CHUNK else 0)
            tracked.mark = Mark.at(offset, head, content.read(max(0, offset - HEAD), min(offset, HEAD)))
        except BrokenContent:
            tracked.whole = True
        finally:
            content.close()

    # Reading them --------------------------------------------------------------------------------------

    def read(self, most: int) -> list[Read]:
        """Lines that are there, about ``most`` bytes of them."""
        found: list[Read] = []
        busy: set[str] = set()  # families of which an older file is not at its end
        self._waiting = False
        for tracked in list(self.tracked):
            while most > 0 and tracked.family not in busy:
                try:
                    lines, taken = self._read_one(tracked)
                except OSError as error:
                    self._complain_once(tracked, error)
                    break
                most -= taken
                if lines:
                    found.append(Read(tracked, lines))
                if not taken:
                    break
            else:
                busy.add(tracked.family)
        return found

    @property
    def finished(self) -> bool:
        """Whether the last ``read`` left nothing that is there now."""
        return not self._waiting

    def _read_one(self, tracked: Tracked) -> tuple[list[Line], int]:
        """A chunk of a file: its lines, and how many bytes were read."""
        place = tracked.place
        if tracked.gone_since is not None and tracked.content is None:
            return [], 0
        if tracked.whole or (place.size <= tracked.position and not place.compressed and not tracked.rest):
            self._rest(tracked)
            return [], 0
        if tracked.content is None:
            tracked.content = self._open(tracked)
            if tracked.content is None:
                self._waiting = True
                return [], 0
        data = tracked.content.read(tracked.position, CHUNK)
        if isinstance(tracked.content, PlainContent):
            last = (tracked.before + tracked.rest)[-HEAD:]
            if tracked.content.read(tracked.position - len(last), len(last)) != last:
                tracked.let_go()  # it was truncated meanwhile; the next look finds out what became of it
                self._waiting = True
                return [], 0
        if data:
            return self._split(tracked, data), len(data)
        ended = self._has_ended(tracked)
        lines = [] if not (ended and tracked.rest) else [self._take_rest(tracked)]
        if place.compressed:
            tracked.whole = True
            tracked.let_go()
        elif ended:
            self._rest(tracked)
        return lines, 0

    def _open(self, tracked: Tracked) -> Content | None:
        content = open_content(tracked.place)
        plain = content if isinstance(content, PlainContent) else None
        moved = plain is not None and plain.place().file != tracked.place.file
        if moved or not still_holds(content, tracked.mark):
            content.close()
            return None  # since the last look; the next one finds out what became of it
        size = min(tracked.mark.offset, HEAD)
        tracked.before = content.read(tracked.mark.offset - size, size)
        return content

    def _rest(self, tracked: Tracked) -> None:
        """At the end of a rotated file: it need not be held open, only known."""
        rotated = tracked.place.path != tracked.family
        quiet = self.clock.now_ms() - tracked.place.modified_ns // 1_000_000 > _QUIET_MS
        if rotated and quiet and tracked.gone_since is None and not tracked.rest:
            tracked.let_go()

    def _has_ended(self, tracked: Tracked) -> bool:
        """Whether a last line without a line feed is all there will be of it."""
        if tracked.place.compressed:
            return True
        if not tracked.rest:
            return True
        age_ms = self.clock.now_ms() - tracked.place.modified_ns // 1_000_000
        rotated = tracked.place.path != tracked.family or tracked.gone_since is not None
        if (rotated and age_ms > _QUIET_MS) or (self.once and age_ms > _QUIET_ONCE_MS):
            return True
        self._waiting = True
        return False

    def _split(self, tracked: Tracked, data: bytes) -> list[Line]:
        buffer = tracked.rest + data
        cut = buffer.rfind(b"\n") + 1
        lines: list[Line] = []
        for line in buffer[:cut].split(b"\n")[:-1] if cut else ():
            if tracked.piece or len(line) > self.longest:
                lines += self._pieces(tracked, line)
                tracked.piece = 0
            else:
                lines.append(Line(line.removesuffix(b"\r")))
        rest = buffer[cut:]
        if len(rest) > self.longest:
            whole = len(rest) - len(rest) % self.longest
            lines += self._pieces(tracked, rest[:whole])
            cut += whole
        self._advance(tracked, buffer[:cut])
        tracked.rest = buffer[cut:]
        return lines

    def _pieces(self, tracked: Tracked, line: bytes) -> list[Line]:
        pieces = [line[at : at + self.longest] for at in range(0, len(line), self.longest)]
        first = tracked.piece + 1
        tracked.piece += len(pieces)
        return [Line(piece, first + at) for at, piece in enumerate(pieces)]

    def _take_rest(self, tracked: Tracked) -> Line:
        line = Line(tracked.rest.removesuffix(b"\r"), tracked.piece + 1 if tracked.piece else 0)
        tracked.piece = 0
        self._advance(tracked, tracked.rest)
        tracked.rest = b""
        return line

    def _advance(self, tracked: Tracked, taken: bytes) -> None:
        tracked.mark = tracked.mark.moved(taken, tracked.before)
        tracked.before = (tracked.before + taken)[-HEAD:]

    def _complain_once(self, tracked: Tracked, error: OSError) -> None:
        broken = isinstance(error, BrokenContent)
        if broken and self.clock.now_ms() - tracked.place.modified_ns // 1_000_000 < _QUIET_MS:
            self._waiting = True  # it is being written
            tracked.let_go()
            return
        if not tracked.complained:
            tracked.complained = True
            self.complain(str(error) if broken else f"can't read {tracked.place.path}: {error.strerror}")
        tracked.let_go()
        tracked.whole = broken
