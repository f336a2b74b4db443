from __future__ import annotations

from millstream.log.epochs import LeaderEpochs
from millstream.log.storage.files import read_file
from millstream.log.storage.memory import MemoryFiles


def some_epochs() -> tuple[MemoryFiles, LeaderEpochs]:
    files = MemoryFiles()
    files.make_directory("/data")
    epochs = LeaderEpochs(files, "/data")
    epochs.begin(0, 0)
    epochs.begin(2, 10)
    epochs.begin(5, 30)
    return files, epochs


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    _, epochs = some_epochs()
    assert epochs.end_of(0, 50) == (0, 10)
    assert epochs.end_of(2, 50) == (2, 30)
    assert epochs.end_of(5, 50) == (5, 50)


def test_an_epoch_that_never_was_is_answered_with_the_one_before_it() -> None:
    _, epochs = some_epochs()
    assert epochs.end_of(1, 50) == (0, 10)
    assert epochs.end_of(4, 50) == (2, 30)


def test_an_epoch_yet_to_come_is_not_known() -> None:
    _, epochs = some_epochs()
    assert epochs.end_of(6, 50) == (-1, -1)


def test_an_epoch_before_the_logs_start_ends_there() -> None:
    _, epochs = some_epochs()
    epochs.cut_start(12)
    assert epochs.end_of(0, 50) == (0, 12)
    assert epochs.end_of(2, 50) == (2, 30)


def test_an_epoch_without_records_leaves_no_trace() -> None:
    _, epochs = some_epochs()
    epochs.begin(6, 30)
    assert epochs.end_of(5, 50) == (2, 30)
    assert epochs.latest == 6


def test_the_latest_epoch_does_not_go_back_when_its_records_go() -> None:
    _, epochs = some_epochs()
    epochs.cut_start(50)
    epochs.cut_end(50)
    assert epochs.latest == 5
    assert epochs.end_of(5, 50) == (5, 50)
    _, epochs = some_epochs()
    epochs.cut_end(20)
    assert epochs.entries == [(0, 0), (2, 10), (5, 20)]


def test_the_checkpoint_is_kafkas_and_brings_the_epochs_back() -> None:
    files, epochs = some_epochs()
    epochs.write()
    assert read_file(files, "/data/leader-epoch-checkpoint") == b"0\n3\n0 0\n2 10\n5 30\n"
    restored = LeaderEpochs(files, "/data")
    restored.load()
    assert [restored.end_of(epoch, 50) for epoch in range(7)] == [epochs.end_of(e, 50) for e in range(7)]


def test_the_epoch_of_an_offset() -> None:
    _, epochs = some_epochs()
    assert [epochs.at(offset) for offset in (0, 9, 10, 29, 30, 99)] == [0, 0, 2, 2, 5, 5]
