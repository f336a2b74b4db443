"""kill -9 while segments go to the archive and leave the disk: each record is somewhere, and once."""

from __future__ import annotations

from pathlib import Path

from millstream.log.archive.object import read_manifest
from millstream.log.archive.store import ArchiveStore
from millstream.records.build import Record
from tests.support.archives import local_start
from tests.support.serve import ServeProcess
from tests.support.topics import consume, create_topic, produce
from tests.support.waiting import wait_for

KILLS = 4
COUNT = 1000  # records between two kills
SETTINGS = {
    "remote.log.manager.task.interval.ms": "20",
    "log.retention.check.interval.ms": "20",
}
ARCHIVED = {
    "segment.bytes": "100000",
    "remote.storage.enable": "true",
    "local.retention.bytes": "150000",
    "file.delete.delay.ms": "100",
}


def test_a_broker_killed_while_it_archives_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "archive"
    settings = {**SETTINGS, "millstream.archive.url": str(place)}
    with ServeProcess(tmp_path / "data", settings=settings) as broker:
        name = create_topic(broker.address, "", 1, ARCHIVED)
        for number in range(KILLS):
            records = [Record(None, b"%0200d" % n) for n in range(number * COUNT, (number + 1) * COUNT)]
            produce(broker.address, name, records, **{"batch.num.messages": 50})
            some = number + 1
            wait_for(lambda: len(list(place.rglob("*.segment"))) >= some, what="copies are under way")  # noqa: B023
            broker.kill()
            broker.start()
        total = KILLS * COUNT
        wait_for(lambda: local_start(broker.address, name) > total * 3 // 4, what="most of it is archived")
        found = consume(broker.address, name, 1)
        assert [int(record.value or b"") for _, record in found] == list(range(total))
        wait_for(lambda: are_contiguous(place, name, broker.address), what="each record is archived once")


def are_contiguous(place: Path, topic: str, address: str) -> bool:
    """The objects are whole and follow one another, up to what is on the disk or beyond."""
    store = ArchiveStore(str(place))
    found = [read_manifest(store, str(each.relative_to(place))) for each in place.rglob("*.segment")]
    whole = sorted((each[0] for each in found if each is not None), key=lambda segment: segment.base_offset)
    ends = [segment.end_offset for segment in whole]
    starts = [segment.base_offset for segment in whole]
    return len(whole) == len(found) and starts == [0, *ends[:-1]] and ends[-1] >= local_start(address, topic)
