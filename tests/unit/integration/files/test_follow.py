"""Log files are followed through whatever happens to them, and every line is read once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.clock import SystemClock
from millstream.integration.files.follow import FileFollower, TrackedFile
from millstream.integration.files.progress import fields_of, tracked_of
from millstream.integration.files.rotation import candidates, is_rotated


class LaterClock(SystemClock):
    """The machine's, moved ahead by as much as a test says: files become old."""

    __slots__ = ("ahead",)

    def __init__(self) -> None:
        self.ahead = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Following:
    """A follower over ``*.log`` files of a directory, which may be restarted from its saved progress."""

    def __init__(
        self, directory: Path, *, from_start: bool = True, once: bool = False, longest: int = 1000
    ) -> None:
        self.directory = directory
        self.clock = LaterClock()
        self.said: list[str] = []
        self.lines: list[bytes] = []
        self._options = {"from_start": from_start, "once": once, "longest": longest}
        self.follower = self._follower([], begun=False)

    def _follower(self, known: list[TrackedFile], *, begun: bool) -> FileFollower:
        pattern = str(self.directory / "a.log")
        return FileFollower(
            [pattern], self.clock, known, begun=begun, complain=self.said.append, **self._options
        )  # type: ignore[arg-type]

    def restart(self) -> None:
        """As after kill -9: only what was written down is known."""
        kept = [tracked_of(each.id, json.dumps(fields_of(each)).encode()) for each in self.follower.tracked]
        self.follower.close()
        self.follower = self._follower(kept, begun=True)

    def step(self, most: int = 1 << 20) -> list[bytes]:
        self.follower.look()
        fresh = [line.data for read in self.follower.read(most) for line in read.lines]
        self.lines += fresh
        return fresh

    def drain(self) -> list[bytes]:
        found: list[bytes] = []
        while fresh := self.step() or self.step():  # what was truncated is found out at the next look
            found += fresh
        return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.log"


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> None:
    with path.open("ab") as file:
        file.write(b"\n".join(lines) + end)


def test_lines_are_read_when_they_are_whole(log: Path) -> None:
    following = Following(log.parent)
    assert following.step() == []
    write(log, b"one", b"two", b"thr", end=b"")
    assert following.step() == [b"one", b"two"]
    write(log, b"ee", b"", b"four\r")
    assert following.step() == [b"three", b"", b"four"]
    assert following.step() == []


def test_at_the_very_first_look_files_are_begun_at_their_end_and_later_ones_at_their_start(log: Path) -> None:
    write(log, b"old", b"unfinis", end=b"")
    write(log.with_name("a.log.1"), b"older")
    following = Following(log.parent, from_start=False)
    assert following.step() == []
    write(log, b"hed")
    assert following.step() == [b"unfinished"]
    log.rename(log.with_name("a.log.2"))
    write(log, b"new")
    assert following.drain() == [b"new"]


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.step()
    write(log, b"2")
    log.rename(log.with_name("a.log.1"))
    write(log, b"3")
    assert following.drain() == [b"2", b"3"]
    write(log.with_name("a.log.1"), b"late")  # by a writer that has not noticed yet
    assert following.drain() == [b"late"]


def test_rotated_again_and_again_between_two_looks(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.step()
    for number in (2, 3, 4):
        for older in (3, 2, 1):
            if (path := log.with_name(f"a.log.{older}")).exists():
                path.rename(log.with_name(f"a.log.{older + 1}"))
        log.rename(log.with_name("a.log.1"))
        write(log, b"%d" % number)
        os.utime(log, ns=(0, number * 10**9))
    assert sorted(following.drain()) == [b"2", b"3", b"4"]


def test_copied_and_truncated_the_rest_is_read_from_the_copy(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1", b"2")
    following.step()
    write(log, b"3")
    shutil.copy(log, log.with_name("a.log.1"))
    os.truncate(log, 0)
    write(log, b"4")
    assert following.drain() == [b"3", b"4"]
    assert not following.said


def test_a_truncated_file_that_grew_again_is_new_content(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1", b"2")
    following.step()
    os.truncate(log, 0)
    write(log, *[b"%d" % number for number in range(10, 30)])
    assert following.drain() == [b"%d" % number for number in range(10, 30)]


def test_a_copy_that_ends_before_what_was_read_is_no_new_content(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1", b"2")
    following.step()
    shutil.copy(log, log.with_name("a.log.1"))
    write(log, b"3")  # after the copy, before the truncation
    assert following.drain() == [b"3"]
    os.truncate(log, 0)
    write(log, b"4")
    assert following.drain() == [b"4"]
    compress(log.with_name("a.log.1"))
    following.restart()
    assert following.drain() == []


def compress(path: Path) -> None:
    with gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(path.read_bytes())
    shutil.copystat(path, f"{path}.gz")  # as gzip does
    path.unlink()


def test_compressed_while_away_it_is_read_on_after_decompression(log: Path) -> None:
    following = Following(log.parent)
    write(log, *[b"line %d" % number for number in range(100)])
    following.step()
    write(log, b"more", b"no line feed", end=b"")
    following.restart()
    log.rename(log.with_name("a.log.1"))
    compress(log.with_name("a.log.1"))
    write(log, b"new")
    assert following.drain() == [b"more", b"no line feed", b"new"]
    following.restart()
    assert following.drain() == []


def test_a_compressed_file_that_is_not_known_is_read_from_its_start(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.step()
    following.restart()
    log.rename(log.with_name("a.log.2"))
    write(log.with_name("a.log.1"), b"2")
    compress(log.with_name("a.log.1"))
    write(log, b"3")
    assert sorted(following.drain()) == [b"2", b"3"]


def test_a_compressed_file_that_is_not_whole_yet_is_waited_for(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.drain()
    write(log, b"2")
    packed = gzip.compress(log.read_bytes())
    log.unlink()
    following.restart()
    half = log.with_name("a.log.1.gz")
    half.write_bytes(packed[: len(packed) // 2])
    assert following.drain() == []
    half.write_bytes(packed)
    assert following.drain() == [b"2"]


def test_a_compressed_file_that_stays_broken_is_told_once(log: Path) -> None:
    following = Following(log.parent)
    following.step()
    log.with_name("a.log.1.gz").write_bytes(b"\x1f\x8b not really")
    following.clock.ahead = 60
    for _ in range(3):
        following.step()
    assert len(following.said) == 1
    assert "not a whole gzip file" in following.said[0]


def test_a_deleted_file_is_read_to_its_end_while_it_is_open(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.step()
    writer = log.open("ab")
    log.unlink()
    writer.write(b"2\n")
    writer.close()
    assert following.drain() == [b"2"]
    following.clock.ahead = 60
    following.step()
    assert following.follower.tracked == []
    assert not following.said


def test_what_is_gone_without_having_been_read_is_said(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.step()
    following.restart()
    log.unlink()
    following.step()
    assert not following.said  # it may be on its way to another name
    following.clock.ahead = 60
    following.step()
    assert "read up to byte 2 is gone" in following.said[0]


def test_a_file_that_cannot_be_seen_while_it_is_renamed_is_not_forgotten(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"1")
    following.step()
    following.restart()
    hidden = log.with_name("elsewhere")
    log.rename(hidden)
    write(log, b"2")
    assert following.step() == [b"2"]
    hidden.rename(log.with_name("a.log.1"))
    assert following.drain() == []


def test_a_line_longer_than_a_record_may_be_comes_in_parts(log: Path) -> None:
    following = Following(log.parent, longest=10)
    write(log, b"a" * 25, b"short", b"b" * 15, end=b"")
    following.follower.look()
    lines = [line for read in following.follower.read(1 << 20) for line in read.lines]
    assert [(line.data, line.piece) for line in lines] == [
        (b"a" * 10, 1),
        (b"a" * 10, 2),
        (b"a" * 5, 3),
        (b"short", 0),
        (b"b" * 10, 1),
    ]
    following.restart()
    write(log, b"c" * 10)
    following.follower.look()
    lines = [line for read in following.follower.read(1 << 20) for line in read.lines]
    assert [(line.data, line.piece) for line in lines] == [(b"b" * 5 + b"c" * 5, 2), (b"c" * 5, 3)]


def test_a_last_line_without_a_line_feed_is_taken_when_nobody_writes_it_any_more(log: Path) -> None:
    following = Following(log.parent, once=True)
    write(log, b"1", b"2", end=b"")
    assert following.drain() == [b"1"]
    assert not following.follower.finished
    following.clock.ahead = 2
    assert following.drain() == [b"2"]
    assert following.follower.finished

    rotated = Following(log.parent / "other", once=False)
    (log.parent / "other").mkdir()
    write(log.parent / "other" / "a.log", b"x", end=b"")
    assert rotated.drain() == []
    (log.parent / "other" / "a.log").rename(log.parent / "other" / "a.log.1")
    assert rotated.drain() == []
    rotated.clock.ahead = 60
    assert rotated.drain() == [b"x"]


def test_files_that_begin_with_the_same_banner_are_not_taken_for_copies(log: Path) -> None:
    following = Following(log.parent)
    banner = [b"== service started"] * 5
    write(log, *banner)
    assert following.drain() == banner
    following.restart()
    for day in (b"one", b"two", b"three"):
        for older in (2, 1):
            if (path := log.with_name(f"a.log.{older}")).exists():
                path.rename(log.with_name(f"a.log.{older + 1}"))
        lines = [b"%s %d" % (day, number) for number in range(100)]
        write(log, *(lines if day == b"one" else banner + lines))
        log.rename(log.with_name("a.log.1"))
    write(log, *banner)
    following.clock.ahead = 60
    expected = [b"%s %d" % (day, number) for day in (b"one", b"two", b"three") for number in range(100)]
    assert following.drain() == [
        *expected[:100],
        *banner,
        *expected[100:200],
        *banner,
        *expected[200:],
        *banner,
    ]


def test_after_copies_while_it_was_down_the_oldest_lines_come_first(log: Path) -> None:
    """Also of a file of which nothing had been read, and which has the inode it always had."""
    log.touch()
    following = Following(log.parent)
    assert following.drain() == []
    following.restart()
    for number in (1, 2):
        write(log, b"%d" % number)
        if log.with_name("a.log.1").exists():
            log.with_name("a.log.1").rename(log.with_name("a.log.2"))
        shutil.copy(log, log.with_name("a.log.1"))
        os.truncate(log, 0)
    write(log, b"3")
    assert following.drain() == [b"1", b"2", b"3"]


def test_what_cannot_be_told_from_a_copy_is_said(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"ping", b"ping")
    following.drain()
    write(log.with_name("a.log.1"), b"ping")
    assert following.drain() == []
    assert not following.said  # it may be a copy that is under way
    following.clock.ahead = 60
    assert following.drain() == following.drain() == []
    assert len(following.said) == 1
    assert "is equal to the beginning of" in following.said[0]


def test_an_inode_that_is_used_again_is_no_known_file(log: Path) -> None:
    packed = log.with_name("a.log.1.gz")
    following = Following(log.parent)
    write(log, b"1")
    following.drain()
    log.rename(log.with_name("a.log.1"))
    compress(log.with_name("a.log.1"))
    assert following.drain() == []
    following.restart()
    packed.write_bytes(gzip.compress(b"1 and more\n2\n"))
    assert following.drain() == [b"1 and more", b"2"]


def test_two_days_that_begin_alike_are_two(log: Path) -> None:
    following = Following(log.parent)
    write(log, b"started")
    assert following.drain() == [b"started"]
    log.rename(log.with_name("a.log.1"))
    write(log, b"started")
    assert following.drain() == [b"started"]


@pytest.mark.parametrize(
    ("name", "rotated"),
    [
        ("a.log.1", True),
        ("a.log.12.gz", True),
        ("a.log-20260101", True),
        ("a.log-20260101.gz", True),
        ("a.log.2026-01-01T10", True),
        ("a-20260101.log", True),
        ("a-20260101.log.gz", True),
        ("a.log.old", True),
        ("a.log.swp", False),
        ("a.log2", False),
        ("ab.log", False),
        ("a-b.log", False),
        ("a.log", False),
    ],
)
def test_names_that_rotation_gives(name: str, rotated: bool) -> None:
    assert is_rotated(f"/var/{name}", "/var/a.log") is rotated


def test_patterns_name_files_and_their_rotated_ones_belong_to_them(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "b.log", "b.log.1.gz", "c.txt"):
        (tmp_path / name).write_bytes(b"x\n")
    (tmp_path / "d.log").mkdir()
    found = {
        Path(each.place.path).name: (Path(each.family).name, each.rotated)
        for each in candidates([str(tmp_path / "*.log*"), str(tmp_path / "none")])
    }
    assert found == {
        "a.log": ("a.log", False),
        "a.log.1": ("a.log", True),
        "b.log": ("b.log", False),
        "b.log.1.gz": ("b.log", True),
    }


ACTIONS = ["write", "write", "write", "part", "rename", "copy", "truncate", "compress", "look", "restart"]


class Rotating:
    """A directory with a log file to which things are done, as a rotation and an application would.

    ``written`` are its lines in order; ``risked`` those that were written between a copy and the truncation
    after it, which may be lost with it if nobody was quick. Every new content begins with ``banner`` lines,
    and of the others each one in ``same`` is a line that has been there before (all of them with 1).
    """

    def __init__(self, directory: Path, *, banner: int = 0, same: int = 0, dated: bool = False) -> None:
        self.directory = directory
        self.log = directory / "a.log"
        self.written: list[bytes] = []
        self.risked: list[bytes] = []
        self._banner = [b"== service started, line %d" % at for at in range(banner)]
        self._same = same
        self._dated = dated
        self._days = 0
        self._since_copy: list[bytes] | None = None
        self._unfinished = b""

    def write(self, number: int) -> None:
        self._begin()
        if self._same and number % self._same == 0:
            self._end_line(b"ping")
        else:
            self._end_line(b"%d %s" % (number, b"x" * (number * 37 % 400)))

    def part(self, number: int) -> None:
        self._begin()
        write(self.log, b"part %d " % number, end=b"")
        self._unfinished += b"part %d " % number

    def _begin(self) -> None:
        if not self.log.exists() or not self.log.stat().st_size:
            for line in self._banner:
                self._end_line(line)

    def _end_line(self, data: bytes) -> None:
        write(self.log, data)
        # The kernel's times have steps of milliseconds: two writes of a test would be at the same time.
        os.utime(self.log, ns=(time.time_ns(), time.time_ns()))
        line, self._unfinished = self._unfinished + data, b""
        self.written.append(line)
        if self._since_copy is not None:
            self._since_copy.append(line)

    def rename(self, number: int) -> None:
        if self._since_copy is None and (older := self._make_room()):
            self.log.rename(older)

    def copy(self, number: int) -> None:
        if self._since_copy is None and (older := self._make_room()):
            shutil.copy2(self.log, older)
            self._since_copy = []

    def truncate(self, number: int) -> None:
        if self._since_copy is not None:
            if self._unfinished:
                self._end_line(b"")
            self.risked += self._since_copy
            self._since_copy = None
            os.truncate(self.log, 0)

    def compress(self, number: int) -> None:
        # A rotation compresses a copy after the truncation.
        newest = max(self.directory.glob("a.log-*[0-9]"), default=self.directory / "a.log.1")
        if newest.exists() and self._since_copy is None:
            compress(newest)

    def _make_room(self) -> Path | None:
        """The name that the file gets which is written."""
        if not self.log.exists():
            return None
        if self._unfinished:
            self._end_line(b"")
        if self._dated:
            self._days += 1
            return self.directory / f"a.log-{20260100 + self._days}"
        for number in range(24, 0, -1):
            for suffix in ("", ".gz"):
                if (older := self.directory / f"a.log.{number}{suffix}").exists():
                    older.rename(self.directory / f"a.log.{number + 1}{suffix}")
        return self.directory / "a.log.1"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(st.sampled_from(ACTIONS), max_size=25),
    banner=st.sampled_from([0, 0, 1, 2, 20]),
    same=st.sampled_from([0, 0, 1, 2]),
    dated=st.booleans(),
)
def test_whatever_happens_to_the_files_every_line_is_read_once_and_in_order(
    tmp_path: Path, actions: list[str], banner: int, same: int, dated: bool
) -> None:
    directory = tmp_path / os.urandom(6).hex()
    directory.mkdir()
    rotating = Rotating(directory, banner=banner, same=same, dated=dated)
    following = Following(directory)
    following.step()  # the first look
    for number, action in enumerate([*actions, "truncate"]):
        if action == "restart":
            following.restart()
        elif action == "look":
            following.step()
        else:
            getattr(rotating, action)(number)
    following.drain()
    following.clock.ahead = 60
    following.drain()
    read, written = Counter(following.lines), Counter(rotating.written)
    hypothesis.note(f"{actions}, {banner=}, {same=}, {dated=}: read {following.lines}, {following.said}")
    assert read - written == Counter(), "no line is read twice"
    told = any("taken for a copy" in said for said in following.said)
    assert told or written - read <= Counter(rotating.risked), "no line is dropped unless that is said"
    once = [line for line in rotating.written if written[line] == 1 and line in read]
    assert [line for line in following.lines if written[line] == 1] == once, "older lines come first"
    shutil.rmtree(directory)
