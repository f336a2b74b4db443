"""Files that a topic is written out to: names, what a start finds, formats. (The rest needs a broker.)"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.integration.files.export import file_name, written
from millstream.integration.files.formats import Lines, Parquet
from millstream.integration.files.store import open_store

PLACE = TopicPartition("a-b.c", 3)
ID, OTHER = "XnUYN3GQTkK0Zb2mOp9r_A", "-0-1-00000000000000000"


class Given:
    """A record as librdkafka gives it."""

    def __init__(
        self, offset: int, value: bytes | None, key: bytes | None = None, headers: Any = None
    ) -> None:
        self._fields = (offset, value, key, headers)

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.partition

    def offset(self) -> int:
        return self._fields[0]

    def value(self) -> bytes | None:
        return self._fields[1]

    def key(self) -> bytes | None:
        return self._fields[2]

    def headers(self) -> Any:
        return self._fields[3]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_123


RECORDS = [Given(0, b"one", b"k", [("h", b"\xff"), ("n", None)]), Given(1, None), Given(7, b"\xfe")]


def put(store: Any, name: str) -> None:
    file = store.create(name)
    file.write(b"x")
    store.finish(name, file, name)


@pytest.mark.parametrize("url", ["{}/new/dir", "file://{}/dir", "memory://{}/dir"])
def test_a_start_goes_on_after_the_last_file_and_removes_what_is_not_whole(url: str, tmp_path: Path) -> None:
    store = open_store(url.format(tmp_path))
    put(store, file_name(PLACE, ID, 0, 9, ".jsonl"))
    put(store, file_name(PLACE, ID, 10, 12, ".jsonl"))
    put(store, file_name(PLACE, ID, 0, 99, ".parquet"))
    put(store, file_name(TopicPartition("a-b.c", 0), ID, 5, 5, ".jsonl"))
    put(store, file_name(TopicPartition("a-b", 3), ID, 0, 999, ".jsonl"))
    put(store, "README")
    store.create(file_name(PLACE, ID, 13, 0, ".jsonl")).close()
    put(store, file_name(PLACE, OTHER, 0, 99, ".jsonl"))
    found = written(store, "a-b.c", ID, ".jsonl")
    assert found == ({PLACE: 13, TopicPartition("a-b.c", 0): 6}, {OTHER})
    assert written(store, "a-b.c", OTHER, ".jsonl") == ({PLACE: 100}, {ID})
    assert not [name for name in store.names() if name.startswith(".")]
    store.close()


def test_two_files_of_one_offset_are_told(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    put(store, file_name(PLACE, ID, 0, 9, ".jsonl"))
    put(store, file_name(PLACE, ID, 9, 12, ".jsonl"))
    with pytest.raises(MillstreamError, match="cover the same offsets"):
        written(store, PLACE.topic, ID, ".jsonl")
    store.close()


def test_files_without_an_id_are_not_taken_for_those_of_a_topic_that_has_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    put(store, file_name(PLACE, "", 0, 9, ".jsonl"))
    assert written(store, PLACE.topic, "", ".jsonl") == ({PLACE: 10}, frozenset())
    with pytest.raises(MillstreamError, match="If the files are of the present topic, rename"):
        written(store, PLACE.topic, ID, ".jsonl")
    store.close()


def test_one_export_at_a_time_writes_to_a_directory(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with pytest.raises(MillstreamError, match="another export is writing"):
        open_store(str(tmp_path))
    store.close()
    open_store(str(tmp_path)).close()


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MillstreamError, match="can't write to"):
        open_store(str(tmp_path / "file" / "dir"))
    with pytest.raises(MillstreamError, match="can't write to nowhere"):
        open_store("nowhere://x")


def test_json_lines_keep_all_of_a_record() -> None:
    file = io.BytesIO()
    writer = Lines(file)
    writer.write(RECORDS)
    writer.end()
    first, second, third = (json.loads(line) for line in file.getvalue().splitlines())
    assert first == {
        "topic": "a-b.c",
        "partition": 3,
        "offset": 0,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "one",
        "headers": [
            {"name": "h", "value": None, "value_base64": "/w=="},
            {"name": "n", "value": None},
        ],
    }
    assert second["value"] is None
    assert third["value_base64"] == "/g=="
    assert writer.size == len(file.getvalue())


def test_parquet_keeps_all_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with path.open("wb") as file:
        writer = Parquet(file)
        writer.write(RECORDS[:2])
        writer.write(RECORDS[2:])
        writer.end()
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["offset"] for row in rows] == [0, 1, 7]
    assert [row["value"] for row in rows] == [b"one", None, b"\xfe"]
    assert rows[0]["headers"] == [{"name": "h", "value": b"\xff"}, {"name": "n", "value": None}]
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000.123
    assert (rows[0]["partition"], rows[0]["timestamp_type"], rows[0]["key"]) == (3, "CreateTime", b"k")


def test_parquet_with_text_has_strings_and_refuses_what_is_none() -> None:
    writer = Parquet(io.BytesIO(), text=True)
    writer.write(RECORDS)
    with pytest.raises(MillstreamError, match=r"a-b.c\[3\] offset 7 is not UTF-8"):
        writer.end()


def test_a_file_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "rename", lambda a, b: (done.append("rename"), rename(a, b)))
    store = open_store(str(tmp_path))
    put(store, "x")
    assert done == ["sync", "rename", "sync"]
    store.close()
