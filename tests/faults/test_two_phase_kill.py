"""A row in PostgreSQL and a record in the log: kill -9 between any two steps, of anyone, and both or neither
are there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from millstream import client
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.examples.two_phase.orders import STEPS, Orders
from tests.support.postgres import Postgres, PostgresUnavailable, postgres
from tests.support.serve import ServeProcess
from tests.support.topics import create_topic, produce, values

ORDERS = TopicPartition("orders", 0)


@dataclass
class Site:
    """A broker, a PostgreSQL and a coordinator's log, all of which outlive their users."""

    broker: ServeProcess
    server: Postgres
    decisions: Path

    def worker(self) -> Orders:
        return Orders(self.broker.address, self.server.url, self.decisions)

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    def kill_postgres(self) -> None:
        self.server.kill()
        self.server.start()

    def rows(self) -> list[str]:
        with psycopg.connect(self.server.url) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM orders").fetchall()]

    def records(self) -> list[str]:
        """What a reader of committed records sees; a marker at the end shows that nothing is held back."""
        produce(self.broker.address, "orders", values('{"number": "end"}'))
        found: list[str] = []
        with PartitionReader(client.Connection.of(self.broker.address), {ORDERS: 0}) as reader:
            while "end" not in found[-1:]:
                found += [json.loads(message.value())["number"] for message in reader.read(100, 5)]
        return [number for number in found if number != "end"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("site")
    try:
        with postgres() as server, ServeProcess(home / "data") as broker:
            create_topic(broker.address, "orders", 1)
            yield Site(broker, server, home / "decisions.db")
    except PostgresUnavailable as reason:
        pytest.skip(str(reason))


PROGRAM = """
import os, signal, sys
from pathlib import Path
from millstream.examples.two_phase.orders import Orders

broker, database, decisions, number, last = sys.argv[1:]

def on_step(step):
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)

with Orders(broker, database, Path(decisions)) as orders:
    orders.recover()
    orders.place(number, "9.90", on_step=on_step)
"""


def die_after(site: Site, number: str, step: str) -> None:
    """A program of its own that places an order and kills itself after a step."""
    command = [sys.executable, "-c", PROGRAM, site.broker.address, site.server.url, str(site.decisions)]
    done = subprocess.run([*command, number, step], timeout=400, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def settled(site: Site, number: str, expected: bool | None) -> None:
    """After recovery the order is on both sides or on neither, and nothing is left open anywhere."""
    with site.worker() as worker:
        worker.recover()
        assert worker.recover() == [], "what is settled needs no settling again"
    rows, records = site.rows(), site.records()
    assert rows.count(number) == records.count(number)
    assert rows.count(number) in (0, 1) if expected is None else rows.count(number) == expected
    assert client.list_prepared(site.broker.address) == []


@pytest.mark.parametrize("step", STEPS)
def test_the_program_dies_between_two_steps(site: Site, step: str) -> None:
    die_after(site, f"program, {step}", step)
    settled(site, f"program, {step}", expected=STEPS.index(step) >= STEPS.index("decided"))


@pytest.mark.parametrize("step", STEPS)
def test_everything_dies_between_two_steps(site: Site, step: str) -> None:
    die_after(site, f"all, {step}", step)
    site.kill_broker()
    site.kill_postgres()
    settled(site, f"all, {step}", expected=STEPS.index(step) >= STEPS.index("decided"))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", ["broker", "PostgreSQL"])
def test_one_side_dies_while_the_program_goes_on(site: Site, step: str, victim: str) -> None:
    kill: Callable[[], None] = site.kill_broker if victim == "broker" else site.kill_postgres
    number = f"{victim}, {step}"
    with site.worker() as worker:
        worker.recover()
        # The broker is waited for, and the order goes through; PostgreSQL's connection is lost with it.
        with contextlib.suppress(psycopg.OperationalError):
            worker.place(number, "1", on_step=lambda now: kill() if now == step else None)
    settled(site, number, expected=None if victim == "PostgreSQL" else True)


def test_an_order_that_postgresql_refuses_leaves_no_record(site: Site) -> None:
    with site.worker() as worker:
        worker.place("twice", "1")
        with pytest.raises(psycopg.errors.UniqueViolation):
            worker.place("twice", "2")
        with pytest.raises(MillstreamError, match="decide it first"):
            worker.place("next", "3")
        assert [text for text in worker.recover() if "rolled back in the log" in text]
        worker.place("next", "3")
    settled(site, "twice", expected=True)
    settled(site, "next", expected=True)


def test_the_example_runs_as_a_program(site: Site) -> None:
    die_after(site, "left", "decided")
    command = [sys.executable, "-m", "millstream.examples.two_phase", "--broker", site.broker.address]
    command += ["--database", site.server.url, "--decisions", str(site.decisions), "example:9.90"]
    done = subprocess.run(command, timeout=400, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("recovered: orders-1:")
    assert lines[1:] == [*(f"  {step}" for step in STEPS), "order example is in PostgreSQL and in the log"]
    settled(site, "left", expected=True)
    settled(site, "example", expected=True)


def test_a_recovery_that_dies_too_is_gone_on_with(site: Site) -> None:
    """The deciding process took the id over, and died before it ended the transaction."""
    number = "recovery"
    die_after(site, number, "decided")
    with site.worker() as worker:
        (token,) = worker._decisions.undone()
    again = (
        "import os, signal, sys\n"
        "from millstream.client import two_phase\n"
        "from millstream.client.protocol import transaction_requests\n"
        "def die(*arguments, **options): os.kill(os.getpid(), signal.SIGKILL)\n"
        "transaction_requests.TransactionClient.end = die\n"
        "two_phase.commit_prepared(sys.argv[1], sys.argv[2])"
    )
    for _ in range(2):
        command = [sys.executable, "-c", again, site.broker.address, str(token)]
        assert subprocess.run(command, timeout=400).returncode == -signal.SIGKILL
        site.kill_broker()
    settled(site, number, expected=True)


def test_prepared_by_nobody_we_know_is_rolled_back(site: Site) -> None:
    """The program died while it wrote: nothing was prepared, and nobody kept a token."""
    child = os.fork()
    if child == 0:
        try:
            txn = client.TwoPhase(site.broker.address, "orders-1").__enter__()
            txn.send("orders", '{"number": "half"}')
            txn._send_batch(ORDERS)
            txn._sender.flush()  # type: ignore[union-attr]
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)  # it must not go on as a second run of the tests
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert len(client.list_prepared(site.broker.address)) == 1
    settled(site, "half", expected=False)
