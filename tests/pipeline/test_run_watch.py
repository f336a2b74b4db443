"""``millstream run --watch`` as a user starts it: edits, mistakes, and Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from tests.pipeline.test_job import produce, records
from tests.pipeline.test_run import MILLSTREAM
from tests.support.waiting import wait_for

PIPELINE = """\
from millstream import Topology
from helper import worth
flow = Topology("words")
words = flow.source("payments", format="text")

@words.operator
def measured(df):
    from pyspark.sql.functions import udf
    return df.select("value", udf(worth)("value").alias("worth"))

measured.to_topic("out", value="worth")
measured.to_view("words", key="value")
"""
HELPER = "def worth(text):\n    return f'{text} is worth %s'\n"


def test_an_edit_starts_it_again_in_the_same_spark(tmp_path: Path, millstream_broker: Broker) -> None:
    pipeline, helper = tmp_path / "words.py", tmp_path / "helper.py"
    pipeline.write_text(PIPELINE)
    helper.write_text(HELPER % 1)
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("payments", partitions=1)
        admin.create_topic("out", partitions=1)
    produce(millstream_broker, [b"salt"])
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [
                MILLSTREAM,
                "run",
                "words.py",
                "-b",
                millstream_broker.address,
                "--watch",
                "--master",
                "local[2]",
            ],
            cwd=tmp_path,
            stdout=out,
            stderr=out,
        )

    def written(count: int) -> list[bytes]:
        def enough() -> list[bytes] | None:
            assert process.poll() is None, said.read_text()
            found = [record.value() for record in records(millstream_broker, "out")]
            return found if len(found) >= count else None

        return wait_for(enough, timeout=400, what=f"{count} records are written", every=0.2)

    try:
        assert written(1) == [b"salt is worth 1"]
        helper.write_text(HELPER % 22)  # the module beside it
        assert written(2)[1:] == [b"salt is worth 22"], "from the start of the topic, with the new code"
        pipeline.write_text(PIPELINE.replace(").alias", ".alias"))  # a mistake
        wait_for(lambda: "waiting for the next edit" in said.read_text(), timeout=60, what="it says so")
        assert "words.py:9: " in said.read_text()
        pipeline.write_text(PIPELINE.replace('key="value"', 'key="worth"'))
        assert written(3)[2:] == [b"salt is worth 22"]
        process.send_signal(signal.SIGINT)
        assert process.wait(400) == 0
    finally:
        process.kill()
        process.wait()
    text = said.read_text()
    assert "Traceback" not in text
    assert text.count("Spark 4") == 1, "it was started once"
    assert "helper.py has changed" in text
    with Admin(Connection(millstream_broker.address)) as admin:
        assert not admin.committed("words"), "the job that runs in earnest has nothing to do with it"
    assert not (tmp_path / ".millstream" / "words").exists()
