"""``millstream example run`` as a user starts it: a program, with Spark and a broker that is there."""

from __future__ import annotations

import re
from pathlib import Path

from millstream import Broker
from millstream.cli.stage.example_stage import leave_nothing
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.jobs.report import TOPIC as STATUS_TOPIC
from tests.pipeline.test_run import millstream


def test_an_example_finds_what_was_planted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Broker() as broker:
        arguments = ("example", "run", "trading", "--for", "10s", "--broker", broker.address)
        done = millstream(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        for rule in ("apart", "rebound"):
            score = re.search(rf"^ *{rule} +(\d+) +(\d+) +100% +(\d+) +100%", done.stdout, re.MULTILINE)
            assert score is not None, done.stdout
            assert score[1] == score[2] == score[3] != "0"
        assert "The view positions" in done.stdout
        assert f"console: `millstream console --broker {broker.address}` shows it meanwhile" in done.stdout
        with Admin(Connection(broker.address)) as admin:
            assert not {"ticks", "orders", "orders.refused", "millstream.jobs"} & set(admin.topics())
            admin.create_topic("orders")
        refused = millstream(*arguments, cwd=tmp_path)
        assert refused.returncode == 2
        assert f"{broker.address} has orders already" in refused.stderr
    assert not (tmp_path / ".millstream").exists()


def test_what_other_jobs_have_told_meanwhile_stays() -> None:
    with Broker() as broker:
        connection = Connection(broker.address)
        with Admin(connection) as admin:
            for others, stays in ((["fraud"], True), ([], False)):
                for topic in ("ticks", STATUS_TOPIC):
                    admin.create_topic(topic, partitions=1)
                for job in ("trading", *others):
                    send_one(connection, STATUS_TOPIC, Outgoing(b"{}", job.encode()))
                leave_nothing(connection, ["ticks"], "trading", jobs_before=False)
                assert (STATUS_TOPIC in admin.topics()) is stays
                if stays:
                    places = admin.partitions([STATUS_TOPIC])
                    assert list(admin.ends(places).values()) == [3], "the last word of its own is taken back"
                    admin.delete_topics([STATUS_TOPIC])
