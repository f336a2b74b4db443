"""A generator started as a program: what ``python generate.py`` does in an example and in a new project."""

from __future__ import annotations

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.examples.feed import main
from millstream.examples.trading.generate import TICKS, Generator
from tests.support.apache_kafka import free_port


def test_a_generator_sends_all_its_events(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        main(Generator, ["--broker", broker.address, "--seconds", "60", "--speed", "0", "--seed", "3"])
        sent = len(list(Generator(seed=3, seconds=60.0).events()))
        assert capsys.readouterr().out.startswith(f"{sent} events, ")
        with Admin(Connection(broker.address)) as admin:
            assert sum(admin.ends(admin.partitions([TICKS])).values()) == sent


def test_without_a_broker_it_says_so() -> None:
    with pytest.raises(SystemExit, match="no broker answers"):
        main(Generator, ["--broker", f"127.0.0.1:{free_port()}", "--seconds", "5"])
