"""The campaign's other rules find what is planted: tables, groups, bounds, look-ups, exports, log lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.campaign import bounds, coverage, exported, keyed, lookups
from tests.campaign.coverage import BLOCK, Sighting, uncovered
from tests.campaign.findings import Finding, bounded
from tests.campaign.keyed import Table, Version
from tests.campaign.ledger import Content
from tests.campaign.log_lines import surprising
from tests.campaign.lookups import NONE, LookUp
from tests.campaign.schedule import ARCHIVE_AWAY, FAULTS, FILL_DISK, KILL_BROKER, Pace, plan_round

PLACE = ("t", 0)


def kinds(findings: Iterable[Finding]) -> set[str]:
    return {finding.kind for finding in findings}


def content(offsets: list[int], timestamps: list[int] | None = None, start: int = 0) -> Content:
    count = len(offsets)
    return Content(
        start,
        offsets[-1] + 1 if offsets else start,
        np.array(offsets, dtype=np.int64),
        np.zeros(count, dtype=np.int32),
        np.arange(count, dtype=np.int64),
        np.array(timestamps or [0] * count, dtype=np.int64),
        ["a"],
    )


# Tables


def table() -> Table:
    """``k`` was set to 3, ``gone`` deleted by 4; a writer was killed with ``k`` at 5 under way."""
    made = Table()
    for key, number, is_tombstone in (
        ("k", 1, False),
        ("gone", 2, False),
        ("k", 3, False),
        ("gone", 4, True),
    ):
        made.sent(key, (number, is_tombstone))
        made.acknowledge(key, number)
    made.sent("k", (5, False))
    return made


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ([("k", (3, False))], None),
        ([("k", (3, False)), ("gone", (4, True))], None),
        ([("k", (3, False)), ("k", (5, False))], None),
        ([("k", (1, False)), ("gone", (4, True))], "lost value"),
        ([("gone", (4, True))], "lost value"),
        ([("k", (3, False)), ("gone", (2, False))], "came back"),
        ([("k", (6, False))], "unknown value"),
        ([("k", (3, True))], "lost value"),
        ([("k", (3, False)), ("x", (1, False))], "unknown value"),
        ([("k", (3, False)), ("k", (1, False)), ("k", (5, False))], "reordered"),
    ],
)
def test_a_table_shows_the_newest_acknowledged_value_or_one_under_way(
    log: list[tuple[str, Version]], kind: str | None
) -> None:
    found = kinds(keyed.check("part", log, table()))
    assert found == set() if kind is None else kind in found


def test_a_table_that_is_settled_expects_what_was_seen() -> None:
    made = table()
    made.settle({"k": (5, False)})
    assert kinds(keyed.check("part", [("k", (5, False))], made)) == set()
    assert kinds(keyed.check("part", [("k", (3, False))], made)) == {"lost value"}


# Groups and offsets that grow


def test_offsets_that_nobody_processed_are_found() -> None:
    assert uncovered([(0, 5), (3, 8), (10, 12)], 0, 12) == [(8, 10)]
    assert uncovered([], 3, 5) == [(3, 5)]
    assert uncovered([(0, 100)], 3, 5) == []

    def check(ranges: list[tuple[int, int]], committed: int) -> set[str]:
        return kinds(coverage.check_processed("part", "g", PLACE, ranges, 0, 10, committed))

    assert check([(0, 10)], 10) == set()
    assert check([(0, 4), (5, 10)], 10) == {"not processed"}
    assert check([(0, 10)], 11) == {"committed too much"}


def test_an_offset_that_goes_back_is_found() -> None:
    def seen(*values: int) -> set[str]:
        return kinds(coverage.check_growing("part", [Sighting("end", PLACE, value, 0) for value in values]))

    assert seen(1, 1, 4) == set()
    assert seen(1, 4, 3) == {"went back"}


def test_a_live_reader_that_saw_other_records_is_found() -> None:
    log = content(list(range(2 * BLOCK)))
    log.digests = {0: 17, 1: 18}
    assert kinds(coverage.check_digests("part", PLACE, log, [{0: 17}, {1: 18, 5: 1}])) == set()
    assert kinds(coverage.check_digests("part", PLACE, log, [{0: 17, 1: 19}])) == {"contradiction"}


# What may leave a log


@pytest.mark.parametrize(
    ("start", "kind"), [(0, None), (5, None), (9, None), (3, "left too late"), (7, "left too early")]
)
def test_a_log_starts_where_it_was_trimmed_to(start: int, kind: str | None) -> None:
    done = [5] if start else []
    found = kinds(bounds.check_trims("part", PLACE, start, 0, asked=[3, 5, 9], done=done))
    assert found == ({kind} if kind else set())


@pytest.mark.parametrize(
    ("size", "kind"), [(100, None), (120, None), (99, "left too early"), (121, "left too late")]
)
def test_what_is_left_has_the_size_that_was_promised(size: int, kind: str | None) -> None:
    found = kinds(bounds.check_size("part", PLACE, size, 100, 120, something_left=True))
    assert found == ({kind} if kind else set())


def test_records_leave_when_they_are_old_enough() -> None:
    newest = [(0, 1000), (10, 2000), (20, 3000)]

    def check(start: int, at_ms: int) -> set[str]:
        seen = [Sighting("start", PLACE, start, at_ms)]
        return kinds(bounds.check_age("part", PLACE, seen, newest, 500, 0))

    assert check(10, 1500) == set()
    assert check(10, 1499) == {"left too early"}
    assert check(11, 2499) == {"left too early"}
    assert check(0, 0) == set()


# Look-ups by time


@pytest.mark.parametrize(
    ("look_up", "right"),
    [
        (LookUp(100, 4, 0), True),
        (LookUp(150, 4, 1), True),
        (LookUp(250, 4, 3), True),
        (LookUp(250, 4, 2), False),
        (LookUp(250, 3, NONE), True),
        (LookUp(250, 4, NONE), False),
        (LookUp(999, 4, NONE), True),
        (LookUp(999, 4, 3), False),
    ],
)
def test_a_look_up_finds_the_first_record_that_is_as_new(look_up: LookUp, right: bool) -> None:
    log = content([0, 1, 2, 3], [100, 200, 150, 300])
    assert kinds(lookups.check("part", PLACE, log, [look_up])) == (set() if right else {"wrong look-up"})


# Exports


def write_export(
    directory: Path, first: int, last: int, offsets: list[int], numbers: list[int] | None = None
) -> None:
    lines = [
        json.dumps({"offset": offset, "value": f"a:{number}:x"})
        for offset, number in zip(offsets, numbers or offsets, strict=True)
    ]
    (directory / f"t.id-0-{first:020}-{last:020}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ([(0, 1, [0, 1]), (2, 3, [2, 3])], None),
        ([(0, 1, [0, 1])], "not exported"),
        ([(0, 1, [0, 1]), (2, 3, [3])], "not exported"),
        ([(0, 1, [0, 1]), (1, 3, [1, 2, 3])], "exported twice"),
        ([(0, 1, [0, 2]), (2, 3, [2, 3])], "wrong export"),
        ([(0, 4, [0, 1, 2, 3, 4])], "wrong export"),
    ],
)
def test_an_export_has_every_record_once(
    files: list[tuple[int, int, list[int]]], kind: str | None, tmp_path: Path
) -> None:
    for first, last, offsets in files:
        write_export(tmp_path, first, last, offsets)
    lines, wrong = exported.read_export("part", tmp_path, "t")
    found = kinds([*wrong, *exported.check("part", "t", lines, {PLACE: content([0, 1, 2, 3])})])
    assert found == set() if kind is None else kind in found


def test_an_export_of_another_record_is_found(tmp_path: Path) -> None:
    write_export(tmp_path, 0, 1, [0, 1], [0, 7])
    lines, _ = exported.read_export("part", tmp_path, "t")
    assert kinds(exported.check("part", "t", lines, {PLACE: content([0, 1])})) == {"wrong export"}


# The broker's log

AT = "2026-01-02 03:04:05"
CUT = (
    f"{AT} WARNING millstream.log.recovery.recovery: "
    "x: cut at byte 7: 9 bytes of a write that a crash interrupted (y)"
)


@pytest.mark.parametrize(
    ("line", "struck", "is_surprising"),
    [
        (f"{AT} INFO    millstream.log: anything at all", [], False),
        (CUT, [], True),
        (CUT, [KILL_BROKER], False),
        (f"{AT} ERROR   millstream.log.storage.room: the disk is full: 7 bytes", [ARCHIVE_AWAY], True),
        (f"{AT} ERROR   millstream.log.storage.room: the disk is full: 7 bytes", [FILL_DISK], False),
        (
            f"{AT} WARNING millstream.log.segment.segment: x.index disagrees with the log",
            list(FAULTS),
            True,
        ),
        ("Traceback (most recent call last):", list(FAULTS), True),
        ("ZeroDivisionError: division by zero", list(FAULTS), True),
        ('  File "x.py", line 7', list(FAULTS), False),
    ],
)
def test_lines_that_no_fault_explains_are_surprising(
    line: str, struck: list[str], is_surprising: bool
) -> None:
    assert bool(list(surprising([line], struck))) == is_surprising


# Findings and the schedule


def test_many_findings_of_one_kind_are_one_story() -> None:
    many = [Finding("part", "lost", str(number)) for number in range(100)]
    assert [finding.detail for finding in bounded(many, most=2)] == ["0", "1", "... 98 more"]


def test_a_seed_always_gives_the_same_round_and_another_seed_another() -> None:
    parts, faults = ["a", "b", "c", "d", "e", "f"], list(FAULTS)
    first = plan_round(7, 3, parts, faults, Pace())
    assert plan_round(7, 3, parts, faults, Pace()) == first
    assert plan_round(8, 3, parts, faults, Pace()) != first
    assert plan_round(7, 4, parts, faults, Pace()) != first


def test_every_part_and_every_fault_comes_up_and_faults_come_in_order() -> None:
    parts, faults = ["a", "b", "c", "d", "e", "f", "g", "h", "i"], list(FAULTS)
    rounds = [plan_round(1, number, parts, faults, Pace()) for number in range(40)]
    assert {name for each in rounds for name in each.parts} == set(parts)
    assert {fault.kind for each in rounds for fault in each.faults} == set(faults)
    for each in rounds:
        times = [fault.at for fault in each.faults]
        assert times == sorted(times)
        assert all(at < each.seconds for at in times)
