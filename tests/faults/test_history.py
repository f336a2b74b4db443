"""The checker finds each anomaly that is planted in a history, and nothing in a history that is sound."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import history as checker
from tests.support.history import Copying, History, Mark, Poll, Transaction, Write, check

IN, OUT = ("in", 0), ("in", 1)
COPY = ("copy", 0)


def sound() -> History:
    """Two partitions and a copy: one transaction committed, one aborted, one unknown that went through, one
    killed before it asked for its commit, and a plain write. Offsets 2 and 5 of the first are markers."""
    wrote = [
        Transaction("t", [Write(IN, "a1"), Write(OUT, "a2")], "committed", 1.0, {"a1": 0, "a2": 0}),
        Transaction("t", [Write(IN, "b1"), Write(OUT, "b2")], "aborted", None, {"b1": 1}),
        Transaction("t", [Write(IN, "c1"), Write(OUT, "c2")], "unknown", 3.0),
        Transaction("u", [Write(IN, "d1"), Write(OUT, "d2")]),
        Transaction("plain", [Write(IN, "e1")], "committed", 4.0, {"e1": 6}),
        Transaction("copier", [Write(COPY, "f1", (IN, 0)), Write(COPY, "f2", (OUT, 0))], "committed", 5.0),
        Transaction("copier", [Write(COPY, "g1", (IN, 3)), Write(COPY, "g2", (OUT, 3))], "aborted", None),
        Transaction(
            "copier",
            [Write(COPY, "h1", (IN, 3)), Write(COPY, "h2", (OUT, 3)), Write(COPY, "h3", (IN, 6))],
            "committed",
            6.0,
        ),
    ]
    committed = {
        IN: {0: "a1", 3: "c1", 6: "e1"},
        OUT: {0: "a2", 3: "c2"},
        COPY: {0: "f1", 1: "f2", 6: "h1", 7: "h2", 8: "h3"},
    }
    everything = {
        IN: {**committed[IN], 1: "b1", 4: "d1"},
        OUT: {**committed[OUT], 1: "b2"},
        COPY: {**committed[COPY], 3: "g1", 4: "g2"},
    }
    polls = [
        Poll("r", 2.0, True, [(IN, 0, "a1")]),
        Poll("dirty", 2.1, False, [(IN, 0, "a1"), (IN, 1, "b1"), (OUT, 0, "a2")]),
        Poll("r", 4.5, True, [(OUT, 0, "a2"), (IN, 3, "c1"), (IN, 6, "e1"), (OUT, 3, "c2")]),
    ]
    marks = [Mark("end", IN, 3), Mark("end", IN, 3), Mark("end", IN, 7), Mark("last stable offset", IN, 6)]
    ends = {IN: (7, 7), OUT: (4, 4), COPY: (10, 10)}
    return History(wrote, polls, marks, [Copying("in", "copy")], everything, committed, ends)


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def test_a_sound_history_has_no_anomaly() -> None:
    assert check(sound()) == []


def lose_a_committed_record(history: History) -> None:
    del history.committed[IN][6], history.everything[IN][6]


def move_a_committed_record(history: History) -> None:
    for log in (history.committed, history.everything):
        log[IN][7] = log[IN].pop(6)


def write_a_record_twice(history: History) -> None:
    history.everything[IN][7] = history.committed[IN][7] = "e1"


def write_an_aborted_record_twice(history: History) -> None:
    history.everything[OUT][2] = "b1"


def show_an_aborted_record_at_the_end(history: History) -> None:
    history.committed[IN][1] = "b1"


def show_an_aborted_record_to_a_reader(history: History) -> None:
    history.polls.append(Poll("r2", 9.0, True, [(IN, 0, "a1"), (IN, 1, "b1")]))


def show_a_record_whose_commit_was_never_asked_for(history: History) -> None:
    history.committed[IN][4] = "d1"


def show_a_record_before_its_commit(history: History) -> None:
    history.polls.append(Poll("r2", 2.5, True, [(IN, 0, "a1"), (IN, 3, "c1")]))


def show_a_record_and_take_it_back(history: History) -> None:
    for log in (history.committed, history.everything):
        del log[IN][3], log[OUT][3]


def commit_half_a_transaction(history: History) -> None:
    del history.committed[OUT][3]


def poll_backwards(history: History) -> None:
    history.polls.append(Poll("r", 8.0, True, [(IN, 3, "c1")]))


def poll_past_a_committed_record(history: History) -> None:
    history.polls.append(Poll("r2", 8.0, True, [(IN, 0, "a1"), (IN, 6, "e1")]))


def poll_past_a_record_of_an_open_transaction(history: History) -> None:
    history.polls.append(Poll("dirty", 8.0, False, [(IN, 4, "d1")]))


def reuse_an_offset(history: History) -> None:
    history.polls.append(Poll("dirty2", 8.0, False, [(IN, 0, "d1")]))


def acknowledge_an_offset_that_is_another_records(history: History) -> None:
    history.transactions[1].offsets["b1"] = 3


def swap_two_writes(history: History) -> None:
    for log in (history.committed, history.everything):
        log[IN][0], log[IN][3] = log[IN][3], log[IN][0]


def invent_a_record(history: History) -> None:
    history.everything[IN][5] = "nobody's"


def let_an_end_go_back(history: History) -> None:
    history.marks += [Mark("end", OUT, 3), Mark("end", OUT, 2)]


def end_before_what_was_seen(history: History) -> None:
    history.marks.append(Mark("last stable offset", IN, 8))


def leave_a_transaction_open(history: History) -> None:
    history.ends[OUT] = (2, 4)


def copy_a_record_twice(history: History) -> None:
    history.transactions.append(Transaction("copier", [Write(COPY, "i1", (IN, 6))], "committed", 7.0))
    history.committed[COPY][10] = history.everything[COPY][10] = "i1"


def forget_to_copy_a_record(history: History) -> None:
    history.transactions[7].writes.pop()
    del history.committed[COPY][8], history.everything[COPY][8]


PLANTED: list[tuple[Callable[[History], None], str]] = [
    (lose_a_committed_record, "lost write"),
    (move_a_committed_record, "lost write"),
    (write_a_record_twice, "duplicate"),
    (write_an_aborted_record_twice, "duplicate"),
    (show_an_aborted_record_at_the_end, "aborted read"),
    (show_an_aborted_record_to_a_reader, "aborted read"),
    (show_a_record_whose_commit_was_never_asked_for, "aborted read"),
    (show_a_record_before_its_commit, "early read"),
    (show_a_record_and_take_it_back, "vanished read"),
    (commit_half_a_transaction, "torn transaction"),
    (poll_backwards, "reordered poll"),
    (poll_past_a_committed_record, "skipped poll"),
    (poll_past_a_record_of_an_open_transaction, "skipped poll"),
    (reuse_an_offset, "contradiction"),
    (acknowledge_an_offset_that_is_another_records, "contradiction"),
    (swap_two_writes, "reordered write"),
    (invent_a_record, "unknown value"),
    (let_an_end_go_back, "went back"),
    (end_before_what_was_seen, "went back"),
    (leave_a_transaction_open, "hanging transaction"),
    (copy_a_record_twice, "copied twice"),
    (forget_to_copy_a_record, "not copied"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_anomaly_is_found(plant: Callable[[History], None], kind: str) -> None:
    history = sound()
    plant(history)
    assert kind in kinds(history)


def test_every_kind_the_checker_knows_is_planted() -> None:
    assert checker.__doc__ is not None
    described = set(checker.__doc__.split("**")[1::2])
    assert described == {kind for _, kind in PLANTED}


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["committed", "aborted", "unknown"]), st.booleans()),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_one_record_of_many_transactions_that_goes_missing_or_appears_is_found(
    shapes: list[tuple[int, str, bool]], chance: Random
) -> None:
    """A log is played by the rules; then one visible record is taken away, or one invisible is shown."""
    history = History()
    log: dict[int, str] = {}
    shown: dict[int, str] = {}
    for number, (size, outcome, went_through) in enumerate(shapes):
        writes = [Write(IN, f"{number}.{index}") for index in range(size)]
        asked = None if outcome == "aborted" else float(number)
        transaction = Transaction("t", writes, outcome, asked)  # type: ignore[arg-type]
        history.transactions.append(transaction)
        for write in writes:
            offset = len(log)
            log[offset] = write.value
            if outcome == "committed" or (outcome == "unknown" and went_through):
                shown[offset] = write.value
    history.everything, history.committed = {IN: log}, {IN: shown}
    assert check(history) == []
    if not log:
        return
    offset = chance.randrange(len(log))
    transaction = history.transactions[int(log[offset].partition(".")[0])]
    if offset in shown:
        del shown[offset]
    else:
        shown[offset] = log[offset]
    found = kinds(history)
    if transaction.outcome == "unknown" and len(transaction.writes) == 1:
        assert found == set()  # all of one record, or none of it: both are sound
    else:
        assert found & {"lost write", "aborted read", "torn transaction"}
