"""Follow log files through rotation, truncation and compression, reading every line once.

Rule 1: a content is read once, wherever it is. The follower knows how far each content was read (``Mark``).
It identifies a file by its content; a content that it does not know is new, and is read from its start.
Rule 2: a plain file is recognised by its inode first, as long as that holds what was read. Only a content
whose inode is gone or holds something else is searched for by what was read of it, in a copy or compressed.
Rule 3: two files that begin alike are two contents, unless one is being made from the other: a copy of the
file that is written, whose bytes all equal that file's first ones, or ``NAME.gz`` beside ``NAME``.
Rule 4: older files of a family are read to their end before newer ones are started. Names say which is older.

What happens to a file, and what the follower does:

    renamed, a new one created      the old one is recognised by its inode and read to its end; the new one
                                    is new
    copied, then truncated          the inode holds other bytes than before: new content; the rest of the old
                                    one is read from the copy
    the same, and the new content   the copy is not the beginning of the file that is written, so that was
    begins like the old one         truncated: the copy is read on, the file from its start
    truncated                       there is no copy: what had not been read is gone, and this is reported
    compressed                      recognised by its content; read on from there after decompression
    being copied or compressed      waited for: a copy until the file is truncated, ``NAME.gz`` as long as
                                    there is a ``NAME``
    deleted                         read to its end while it is open here, then forgotten

What can't be told apart: a file may equal the beginning of the file that is written, while the latter still
has its old inode. Then it is either a copy, or was written with the same lines. It is taken for a copy, and
this is reported. And if a file was truncated between two looks and begins with exactly what had been read
of it, it is read on from there.

A last line without a line feed waits as long as somebody may still be writing it. It is taken from a file
that was rotated away and is no longer written, or, if reading ends there (``once``), from one that was not
written for a second.

Files are polled. State is in memory: ``TrackedFile`` and its marks. The caller that sends the lines stores
them safely (``integration.files.progress``) and passes them in again after a restart.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.core.clock import Clock
from millstream.integration.files.content import (
    HEAD,
    START,
    BrokenContent,
    Content,
    FileStat,
    Mark,
    PlainContent,
    begins_with,
    ends_within,
    mark_at,
    open_content,
    still_holds,
)
from millstream.integration.files.rotation import Candidate, candidates

log = logging.getLogger(__name__)

CHUNK = 1 << 18
LONGEST_LINE = 900_000  # bytes; a little less than the default limit of clients and brokers for a record
_QUIET_MS = (
    5000  # a rotated file that was not written for so long has its last line, and is no copy in progress
)
_QUIET_ONCE_MS = 1000
_FORGET_AFTER = 10.0  # seconds away, and not written if it is open here, until a file counts as gone


class Line(NamedTuple):
    """A line, or a part of one that is too long for a record. ``piece`` counts from 1; 0 is a whole line."""

    data: bytes
    piece: int = 0


@dataclass(slots=True, eq=False)
class TrackedFile:
    """One content: where it is and how far it was read. ``order`` is the order in which contents were found.

    ``ended`` is the size of a copy that ends before the mark: lines were read from the file after it was
    copied and before it was truncated. Such a copy has nothing to read; it is only recognised."""

    id: str
    family: str
    place: FileStat
    mark: Mark = START
    order: int = 0
    piece: int = 0  # how many parts of an overlong line were taken
    whole: bool = False  # compressed, and read to its end
    ended: int | None = None
    read_ms: int = 0  # when something of it was read last
    content: Content | None = None
    rest: bytes = b""  # of a line whose end has not come yet; it is after the mark
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


class ReadLines(NamedTuple):
    """Lines of one file. ``tracked`` is already past them."""

    tracked: TrackedFile
    lines: list[Line]


@dataclass(slots=True)
class FileFollower:
    """Follows the files of some patterns. ``known`` is what was tracked before a restart; ``begun`` says
    that there was a look before.

    ``from_start``: read files that the patterns name and that exist at the very first look from their
    start, not their end. Other files that exist then are not read; files that come later always are.
    ``complain`` receives what a person should know, as a sentence."""

    patterns: Sequence[str]
    clock: Clock
    known: Iterable[TrackedFile] = ()
    begun: bool = False
    from_start: bool = False
    once: bool = False
    longest: int = LONGEST_LINE
    complain: Callable[[str], None] = log.warning
    tracked: list[TrackedFile] = field(default_factory=list)
    forgotten: list[TrackedFile] = field(default_factory=list)  # whose progress is no longer needed
    _verdicts: dict[tuple[FileStat, str, int], str] = field(default_factory=dict)
    _copies: dict[tuple[FileStat, FileStat, bool], bool] = field(default_factory=dict)
    _undecided: set[str] = field(default_factory=set)  # families with a file that is waited for
    _told: set[tuple[int, int]] = field(default_factory=set)
    _first_look: bool = True
    _waiting: bool = False

    def __post_init__(self) -> None:
        self.tracked = sorted(self.known, key=lambda each: each.order)
        self._first_look = not self.begun

    def close(self) -> None:
        for tracked in self.tracked:
            tracked.let_go()

    # Finding files -------------------------------------------------------------------------------------

    def look(self) -> list[TrackedFile]:
        """Find the files again, under whatever names. Returns those that are new."""
        there = candidates(self.patterns)
        self._undecided.clear()
        claimed, homeless = self._by_inode(there)
        free = [each for each in there if each.place.file not in claimed]
        for tracked in sorted(homeless, key=lambda each: (each.place.modified_ns, each.order)):
            moved = self._moved(tracked, free)
            if moved is not None:
                self._move(tracked, moved)
                free.remove(moved)
            else:
                replaced = any(each.place.file == tracked.place.file for each in there)
                self._gone(tracked, replaced=replaced)
        fresh = [self._track(each) for each in self._new(there, free)]
        places = {each.place.file: at for at, each in enumerate(there)}
        self.tracked.sort(key=lambda each: self._age(each, places))
        self._first_look = False
        now = {each.place for each in there}
        self._verdicts = {key: found for key, found in self._verdicts.items() if key[0] in now}
        self._copies = {key: found for key, found in self._copies.items() if key[0] in now}
        return fresh

    def _by_inode(self, there: Iterable[Candidate]) -> tuple[set[tuple[int, int]], list[TrackedFile]]:
        """The inodes that still hold what was read of them, and the contents that have moved or are gone."""
        by_file = {each.place.file: each for each in reversed(list(there))}
        claimed: set[tuple[int, int]] = set()
        homeless = []
        for tracked in self.tracked:
            found = by_file.get(tracked.place.file)
            if found is not None and found.place.file not in claimed and self._holds(found, tracked):
                claimed.add(found.place.file)
                tracked.place, tracked.gone_since = found.place, None
            else:
                homeless.append(tracked)
        return claimed, homeless

    def _age(self, tracked: TrackedFile, places: dict[tuple[int, int], int]) -> tuple[str, int, int]:
        """A sort key by age. Contents that are gone, if still open here, come before their replacement."""
        written = tracked.place.path == tracked.family
        if tracked.gone_since is not None:
            return tracked.family, 2 if written else 0, tracked.order
        return tracked.family, 3 if written else 1, places.get(tracked.place.file, 0)

    def _holds(self, found: Candidate, tracked: TrackedFile) -> bool:
        place, known = found.place, tracked.place
        if place == known and tracked.content is not None:
            return True
        if tracked.whole and (place.size, place.modified_ns) == (known.size, known.modified_ns):
            return True
        if tracked.ended is not None:
            return place.size == tracked.ended and self._verdict(place, tracked) == "within"
        if tracked.mark.offset == 0 and tracked.content is None:
            # Nothing is known of its content, and an inode is reused once its file is deleted.
            return place.path == known.path == tracked.family
        if tracked.content is None and found.rotated and place.size == known.size:
            # A reused inode may hold equal lines, but has another time.
            return place.modified_ns == known.modified_ns and self._verdict(place, tracked) == "same"
        return self._verdict(place, tracked) == "same"

    def _verdict(self, place: FileStat, tracked: TrackedFile) -> str:
        """``same``; ``within`` (the same, but shorter than what was read); ``broken``; or ``other``."""
        key = (place, tracked.id, tracked.mark.offset)
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self._compare(place, tracked.mark)
        return known

    def _compare(self, place: FileStat, mark: Mark) -> str:
        try:
            content = open_content(place)
        except OSError:
            return "broken"
        try:
            if still_holds(content, mark):
                return "same"
            return "within" if ends_within(content, mark) else "other"
        except OSError:
            return "broken"
        finally:
            content.close()

    def _moved(self, tracked: TrackedFile, free: Iterable[Candidate]) -> Candidate | None:
        """The new place of a content that has moved: the oldest file that holds what was read of it."""
        within = None
        for each in free:
            if not each.rotated or each.family != tracked.family:
                continue
            if tracked.mark.offset == 0:
                # Nothing of it was read. Its content is known only through the file that is open here.
                if _was_made_of(each.place, tracked.content):
                    return each
                continue
            verdict = self._verdict(each.place, tracked)
            if verdict == "same" and tracked.ended is None:
                return each
            if verdict == "within" and within is None and self._ends_before(each.place, tracked):
                within = each
        return within

    def _ends_before(self, place: FileStat, tracked: TrackedFile) -> bool:
        """True if a shorter content can be a copy of this one, made before the last lines were read."""
        if tracked.ended is None:
            return place.modified_ns // 1_000_000 <= tracked.read_ms
        return _length(place, tracked.ended) == tracked.ended

    def _move(self, tracked: TrackedFile, to: Candidate) -> None:
        tracked.let_go()
        if self._verdict(to.place, tracked) == "within":
            tracked.ended = _length(to.place, tracked.mark.offset)
        tracked.place, tracked.gone_since, tracked.whole = to.place, None, False

    def _new(self, there: list[Candidate], free: list[Candidate]) -> list[Candidate]:
        """Of the files without a known content, those that are not being made from another file."""
        written = {each.family: each for each in there if not each.rotated}
        plain = {each.place.path for each in self.tracked if each.gone_since is None}
        new = []
        for each in free:
            if each.family in self._undecided:
                continue  # its turn comes later
            if each.rotated:
                if each.place.path.removesuffix(".gz") in plain - {each.place.path}:
                    continue
                holder = self._holder(each.family)
                origin = written.get(each.family)
                if self._is_under_way(each, origin, holder):
                    continue
                if origin is not None and holder and self._verdict(each.place, holder) == "same":
                    # The file that is written was truncated, and begins as it did before.
                    self._move(holder, each)
                    free.append(origin)  # to come last, as it is the newest
                    continue
            new.append(each)
        return new

    def _holder(self, family: str) -> TrackedFile | None:
        """The tracked file that is still being written under its own name, if part of it was read."""
        for each in self.tracked:
            if each.place.path == each.family == family and each.gone_since is None and each.mark.offset:
                return each
        return None

    def _is_under_way(self, rotated: Candidate, origin: Candidate | None, holder: TrackedFile | None) -> bool:
        """True if a file is not to be read (yet): it is a copy of the file that is written, which may be
        about to be truncated; or it is not complete."""
        place = rotated.place
        touched_ms = max(place.modified_ns, place.changed_ns) // 1_000_000
        young = self.clock.now_ms() - touched_ms < _QUIET_MS
        if place.compressed:
            waits = young and _length(place, 1 << 62) is None
        else:
            waits = origin is not None and self._is_copy(place, origin.place, young)
            if waits and holder is not None:
                if not young and place.file not in self._told:
                    self._told.add(place.file)
                    self.complain(
                        f"{place.path} is equal to the beginning of {rotated.family} and was taken for a"
                        " copy of it. If it is not, its lines are missing: send them with"
                        " `millstream produce`"
                    )
                return True
            waits = waits and young
        if waits:
            self._undecided.add(rotated.family)
        return waits

    def _is_copy(self, place: FileStat, origin: FileStat, young: bool) -> bool:
        if place.size > origin.size:
            return False
        key = (place, origin, young)
        known = self._copies.get(key)
        if known is None:
            known = self._copies[key] = _is_beginning(place, origin, quick=young)
        return known

    def _gone(self, tracked: TrackedFile, *, replaced: bool) -> None:
        """Handle a tracked content that can't be found by name. It may be between two names at this moment,
        so it is forgotten only if it stays away."""
        now = self.clock.monotonic()
        content = tracked.content
        if isinstance(content, PlainContent) and still_holds(content, tracked.mark):
            # Deleted or moved away, but open here: there may be more to read.
            tracked.place = content.place()._replace(path=tracked.place.path)
            if tracked.place.size > tracked.position:
                tracked.gone_since = now
        else:
            tracked.let_go()
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

    def _say_gone(self, tracked: TrackedFile, *, replaced: bool) -> None:
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

    def _track(self, candidate: Candidate) -> TrackedFile:
        order = max((each.order for each in self.tracked), default=0) + 1
        tracked = TrackedFile(uuid.uuid4().hex, candidate.family, candidate.place, order=order)
        if self._first_look and not (self.from_start and candidate.named):
            self._begin_at_end(tracked)
        self.tracked.append(tracked)
        return tracked

    def _begin_at_end(self, tracked: TrackedFile) -> None:
        place = tracked.place
        try:
            content = open_content(place)
        except OSError:
            return
        try:
            if place.compressed:
                tracked.whole = True  # recognised by its inode, size and time only
                return
            last = content.read(max(0, place.size - CHUNK), CHUNK)
            unfinished = len(last) - (last.rfind(b"\n") + 1)
            offset = place.size - (unfinished if unfinished < len(last) or place.size <= CHUNK else 0)
            tracked.mark = mark_at(content, offset)
        finally:
            content.close()

    # Reading them --------------------------------------------------------------------------------------

    def read(self, most: int) -> list[ReadLines]:
        """The lines that are there, about ``most`` bytes of them."""
        found: list[ReadLines] = []
        busy: set[str] = set()  # families with an older file that is not at its end
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
                    found.append(ReadLines(tracked, lines))
                if not taken:
                    break
            else:
                busy.add(tracked.family)
        return found

    @property
    def finished(self) -> bool:
        """True if the last ``read`` left nothing of what is there now."""
        return not self._waiting and not self._undecided

    def _read_one(self, tracked: TrackedFile) -> tuple[list[Line], int]:
        """Read a chunk of a file. Returns its lines, and how many bytes were read."""
        place = tracked.place
        if tracked.gone_since is not None and tracked.content is None:
            return [], 0
        if (
            tracked.whole
            or tracked.ended is not None
            or (place.size <= tracked.position and not place.compressed and not tracked.rest)
        ):
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
                tracked.let_go()  # truncated in the meantime; the next look finds out what became of it
                self._waiting = True
                return [], 0
        if data:
            tracked.read_ms = self.clock.now_ms()
            return self._split(tracked, data), len(data)
        ended = self._has_ended(tracked)
        lines = [] if not (ended and tracked.rest) else [self._take_rest(tracked)]
        if place.compressed:
            tracked.whole = True
            tracked.let_go()
        elif ended:
            self._rest(tracked)
        return lines, 0

    def _open(self, tracked: TrackedFile) -> Content | None:
        content = open_content(tracked.place)
        plain = content if isinstance(content, PlainContent) else None
        moved = plain is not None and plain.place().file != tracked.place.file
        if moved or not still_holds(content, tracked.mark):
            content.close()
            return None  # changed since the last look; the next one finds out how
        size = min(tracked.mark.offset, HEAD)
        tracked.before = content.read(tracked.mark.offset - size, size)
        return content

    def _rest(self, tracked: TrackedFile) -> None:
        """At the end of a rotated file: close it. It only has to be recognised."""
        rotated = tracked.place.path != tracked.family
        quiet = self.clock.now_ms() - tracked.place.modified_ns // 1_000_000 > _QUIET_MS
        if rotated and quiet and tracked.gone_since is None and not tracked.rest:
            tracked.let_go()

    def _has_ended(self, tracked: TrackedFile) -> bool:
        """True if a last line without a line feed is complete."""
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

    def _split(self, tracked: TrackedFile, data: bytes) -> list[Line]:
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

    def _pieces(self, tracked: TrackedFile, line: bytes) -> list[Line]:
        pieces = [line[at : at + self.longest] for at in range(0, len(line), self.longest)]
        first = tracked.piece + 1
        tracked.piece += len(pieces)
        return [Line(piece, first + at) for at, piece in enumerate(pieces)]

    def _take_rest(self, tracked: TrackedFile) -> Line:
        line = Line(tracked.rest.removesuffix(b"\r"), tracked.piece + 1 if tracked.piece else 0)
        tracked.piece = 0
        self._advance(tracked, tracked.rest)
        tracked.rest = b""
        return line

    def _advance(self, tracked: TrackedFile, taken: bytes) -> None:
        tracked.mark = tracked.mark.moved(taken, tracked.before)
        tracked.before = (tracked.before + taken)[-HEAD:]

    def _complain_once(self, tracked: TrackedFile, error: OSError) -> None:
        broken = isinstance(error, BrokenContent)
        if broken and self.clock.now_ms() - tracked.place.modified_ns // 1_000_000 < _QUIET_MS:
            self._waiting = True  # it is still being written
            tracked.let_go()
            return
        if not tracked.complained:
            tracked.complained = True
            self.complain(str(error) if broken else f"can't read {tracked.place.path}: {error.strerror}")
        tracked.let_go()
        tracked.whole = broken


def _length(place: FileStat, most: int) -> int | None:
    """The length of a content, up to ``most``; None if it can't be read."""
    if not place.compressed:
        return min(place.size, most)
    try:
        content = open_content(place)
    except OSError:
        return None
    length = 0
    try:
        while length < most and (data := content.read(length, CHUNK)):
            length += len(data)
    except OSError:
        return None
    finally:
        content.close()
    return min(length, most)


def _was_made_of(place: FileStat, origin: Content | None) -> bool:
    """True if all of a file is the beginning of one that is open."""
    if not isinstance(origin, PlainContent):
        return False
    length = _length(place, origin.place().size + 1)
    if not length or length > origin.place().size:
        return False
    try:
        content = open_content(place)
    except OSError:
        return False
    try:
        return begins_with(origin, length, content, quick=False)
    except OSError:
        return False
    finally:
        content.close()


def _is_beginning(place: FileStat, origin: FileStat, *, quick: bool) -> bool:
    """True if all of a file is the beginning of another one. ``quick``: compare only its two ends."""
    try:
        part, whole = PlainContent(place.path), PlainContent(origin.path)
    except OSError:
        return True  # one of them is gone; the next look finds out how
    try:
        return begins_with(whole, place.size, part, quick=quick)
    finally:
        part.close()
        whole.close()
