"""The campaign's ledger finds each fault that is planted in a log, and nothing in a sound one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.campaign import ledger
from tests.campaign.ledger import Account, Accounts, Content

PLACE = ("t", 0)
BASE = 10


class Log:
    """A partition that two lives wrote to, interleaved: offset, life and number of each record."""

    def __init__(self) -> None:
        self.start, self.end = BASE, BASE + 8
        self.records = [(10, "a", 0), (11, "a", 1), (12, "b", 0), (13, "a", 2)]
        self.records += [(14, "b", 1), (15, "b", 2), (16, "a", 3), (17, "a", 4)]
        self.accounts = Accounts()
        for offset, life, number in self.records:
            account = self.accounts.of(PLACE, life)
            account.sent = 6
            account.acknowledge(number, 1, offset)

    def content(self) -> Content:
        names = sorted({life for _, life, _ in self.records})
        columns = list(zip(*self.records, strict=True)) if self.records else [(), (), ()]
        offsets = np.array(columns[0], dtype=np.int64)
        lives = np.array([names.index(life) for life in columns[1]], dtype=np.int32)
        numbers = np.array(columns[2], dtype=np.int64)
        return Content(self.start, self.end, offsets, lives, numbers, offsets * 10, names)

    def kinds(self) -> set[str]:
        lives = self.accounts.by_place[PLACE]
        found = list(ledger.check("part", PLACE, self.content(), lives, BASE))
        found += ledger.check_kept("part", PLACE, self.content(), lives, BASE)
        return {finding.kind for finding in found}


def test_a_sound_log_has_no_finding() -> None:
    assert Log().kinds() == set()


def test_a_record_that_was_sent_and_not_acknowledged_may_be_there_or_not() -> None:
    log = Log()
    log.records.append((18, "a", 5))
    log.end += 1
    assert log.kinds() == set()


def lose_the_last_record(log: Log) -> None:
    log.records.pop()
    log.end -= 1


def lose_a_record_and_its_offset(log: Log) -> None:
    del log.records[3]


def lose_a_record_and_close_up(log: Log) -> None:
    del log.records[3]
    log.records = [(offset, *rest) for offset, (_, *rest) in enumerate(log.records, BASE)]  # type: ignore[misc]
    log.end -= 1


def lose_the_first_records(log: Log) -> None:
    log.records = log.records[3:]
    log.start += 3


def lose_everything(log: Log) -> None:
    log.records = []
    log.start = log.end


def write_a_record_twice(log: Log) -> None:
    log.records.append((18, "a", 4))
    log.end += 1


def write_a_batch_twice(log: Log) -> None:
    log.records += [(18, "a", 3), (19, "a", 4)]
    log.end += 2


def swap_two_records(log: Log) -> None:
    log.records[0], log.records[1] = (10, "a", 1), (11, "a", 0)


def put_another_record_where_one_was_acknowledged(log: Log) -> None:
    log.records[1], log.records[2] = (11, "b", 0), (12, "a", 1)


def invent_a_life(log: Log) -> None:
    log.records.append((18, "c", 0))
    log.end += 1


def invent_a_number(log: Log) -> None:
    log.records += [(18, "a", 5), (19, "a", 6)]
    log.end += 2


def read_an_offset_twice(log: Log) -> None:
    log.records.insert(4, (13, "a", 2))


PLANTED: list[tuple[Callable[[Log], None], str]] = [
    (lose_the_last_record, "lost"),
    (lose_a_record_and_its_offset, "hole"),
    (lose_a_record_and_close_up, "lost"),
    (lose_the_first_records, "lost"),
    (lose_everything, "lost"),
    (write_a_record_twice, "duplicate"),
    (write_a_batch_twice, "duplicate"),
    (swap_two_records, "reordered"),
    (put_another_record_where_one_was_acknowledged, "misplaced"),
    (invent_a_life, "unknown record"),
    (invent_a_number, "unknown record"),
    (read_an_offset_twice, "reordered"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_fault_is_found(plant: Callable[[Log], None], kind: str) -> None:
    log = Log()
    plant(log)
    assert kind in log.kinds()


def test_every_kind_that_is_described_is_planted() -> None:
    assert ledger.__doc__ is not None
    assert set(ledger.__doc__.split("**")[1::2]) == {kind for _, kind in PLANTED}


def test_what_is_below_the_start_of_a_log_with_retention_is_not_missed() -> None:
    log = Log()
    lose_the_first_records(log)
    assert list(ledger.check("part", PLACE, log.content(), log.accounts.by_place[PLACE], BASE)) == []


def test_acknowledgements_that_follow_each_other_are_one_run() -> None:
    account = Account()
    for number in range(5):
        account.acknowledge(number, 2, 100 + 2 * number if number else 100)
    account = Account()
    account.acknowledge(0, 3, 100)
    account.acknowledge(3, 2, 103)
    account.acknowledge(5, 1, 110)
    assert account.runs == [(0, 5, 100), (5, 1, 110)]
    assert account.acknowledged == 6


def test_a_round_is_held_against_what_came_after_its_base() -> None:
    content = Log().content()
    ours = content.since(14)
    assert (ours.start, ours.end, list(ours.numbers)) == (14, 18, [1, 2, 3, 4])
    assert replace(content, start=content.end).since(14).start == content.end


def test_a_log_in_memory_owes_what_was_acknowledged_since_the_start_and_is_not_dropped() -> None:
    log = Log()
    fresh = [("a", 3, 2, 16), ("b", 0, 1, 12)]
    assert list(ledger.check_volatile("part", PLACE, log.content(), fresh)) == []
    lose_the_first_records(log)
    assert list(ledger.check_volatile("part", PLACE, log.content(), fresh)) == []
    lose_the_last_record(log)
    assert {finding.kind for finding in ledger.check_volatile("part", PLACE, log.content(), fresh)} == {
        "lost"
    }
