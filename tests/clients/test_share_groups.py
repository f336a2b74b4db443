"""Share groups with real clients: librdkafka's, Java's and franz-go's."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from tests.support.command import CommandLine
from tests.support.pair import leader_and_standby, wait_until_whole
from tests.support.programs import FRANZ, JAVA, Program, ProgramUnavailable
from tests.support.topics import create_topic, produce, set_group_settings, values
from tests.support.waiting import wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "share-groups.md"
COUNT = 400


@pytest.fixture
def topic(address: str, name: str) -> str:
    """A topic of two partitions with records, and a share group of the same name that reads all of them."""
    create_topic(address, name)
    set_group_settings(address, name, {"share.auto.offset.reset": "earliest"})
    for partition in range(2):
        produce(address, name, values(*range(partition, COUNT, 2)), partition)
    return name


def share_consumer(address: str, group: str, **settings: object) -> ShareConsumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = ShareConsumer({"bootstrap.servers": address, "group.id": group, "log_level": 0, **named})
    consumer.subscribe([group])
    return consumer


def test_two_members_of_librdkafka_share_single_records(address: str, topic: str) -> None:
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def work() -> None:
        consumer = share_consumer(address, topic)
        try:
            while sum(seen.values()) < COUNT:
                messages = list(consumer.poll(timeout=0.2))
                # Otherwise they would be accepted by the next poll, and given back by close.
                consumer.commit_sync()
                with lock:
                    seen.update(message.value().decode() for message in messages)
        finally:
            consumer.close()

    members = [threading.Thread(target=work) for _ in range(2)]
    for member in members:
        member.start()
    for member in members:
        member.join(120)
    assert seen == Counter(str(number) for number in range(COUNT))


def test_librdkafka_releases_and_rejects(address: str, topic: str) -> None:
    consumer = share_consumer(address, topic, share_acknowledgement_mode="explicit")
    counts: Counter[str] = Counter()
    finished: set[str] = set()

    def work() -> bool:
        for message in consumer.poll(timeout=0.2):
            text = message.value().decode()
            assert text not in finished
            counts[text] += 1
            assert message.delivery_count() == counts[text]
            if int(text) % 10 == 0 and counts[text] < 3:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                finished.add(text)
                kind = AcknowledgeType.REJECT if int(text) % 7 == 0 else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, kind)
        assert not [error for error in consumer.commit_sync().values() if error is not None]
        return len(finished) == COUNT

    try:
        wait_for(work, timeout=120)
    finally:
        consumer.close()
    assert {text for text, count in counts.items() if count == 3} == {str(n) for n in range(0, COUNT, 10)}


@pytest.mark.parametrize("program", [JAVA, FRANZ], ids=lambda program: program.name)
def test_other_clients_share_release_reject_and_renew(address: str, topic: str, program: Program) -> None:
    """The program releases each tenth record once, renews each eleventh, and accepts the rest."""
    try:
        found = program.ask(address, "share", topic, topic, COUNT, timeout=180)
    except ProgramUnavailable as reason:
        pytest.skip(str(reason))
    deliveries = Counter(line["value"] for line in found)
    assert set(deliveries) == {str(number) for number in range(COUNT)}
    assert {value for value, count in deliveries.items() if count > 1} == {
        str(number) for number in range(0, COUNT, 10)
    }
    assert {line["delivery"] for line in found} == {1, 2}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_left_out_where_the_group_says_so(address: str, name: str, level: str) -> None:
    create_topic(address, name, 1)
    reset = {"share.auto.offset.reset": "earliest", "share.isolation.level": level}
    set_group_settings(address, name, reset)
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        producer.produce(name, str(number).encode(), partition=0)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    step = 2 if level == "read_committed" else 1
    expected = {str(number) for number in range(0, 20, step)}
    seen: set[str] = set()
    consumer = share_consumer(address, name)

    def work() -> bool:
        seen.update(message.value().decode() for message in consumer.poll(timeout=0.2))
        consumer.commit_sync()
        return len(seen) >= len(expected)

    try:
        wait_for(work)
    finally:
        consumer.close()
    assert seen == expected


def test_the_example_of_the_guide_runs(address: str, tmp_path: Path) -> None:
    worker, beginning = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    create_topic(address, "mails")
    produce(address, "mails", values("to ada", "to bob"))
    for name, code in (("begin.py", beginning), ("worker.py", worker)):
        (tmp_path / name).write_text(code.replace("127.0.0.1:9092", address))
    subprocess.run([sys.executable, tmp_path / "begin.py"], check=True, timeout=60)
    with subprocess.Popen(
        [sys.executable, "-u", tmp_path / "worker.py"], stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            lines = {running.stdout.readline().strip() for _ in range(2)}
        finally:
            running.kill()
    assert lines == {"to ada - delivery 1", "to bob - delivery 1"}


def test_a_promoted_standby_goes_on_with_what_was_acknowledged(tmp_path: Path, name: str) -> None:
    with leader_and_standby(tmp_path) as (leader, standby):
        create_topic(leader.address, name, 1)
        set_group_settings(leader.address, name, {"share.auto.offset.reset": "earliest"})
        produce(leader.address, name, values(*range(COUNT)))
        consumer = share_consumer(leader.address, name, share_acknowledgement_mode="explicit")
        released: set[str] = set()
        done: set[str] = set()

        def work() -> bool:
            for message in consumer.poll(timeout=0.2):
                text = message.value().decode()
                if int(text) % 3 == 0:
                    released.add(text)
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)
                elif text not in done:
                    done.add(text)
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            assert not [error for error in consumer.commit_sync().values() if error is not None]
            return len(released | done) == COUNT

        wait_for(work)
        consumer.close()
        wait_until_whole(leader, standby)
        leader.kill()
        CommandLine(standby.address).json("promote")
        rest = share_consumer(standby.address, name)
        found: dict[str, int] = {}

        def read() -> bool:
            found.update((m.value().decode(), m.delivery_count()) for m in rest.poll(timeout=0.2))
            return len(found) == len(released)

        wait_for(read)
        rest.close()
        assert set(found) == released
        assert min(found.values()) >= 2
