"""``pip install millstream`` in a fresh environment, on a machine without a C compiler."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environments import Environment
from tests.support.serve import ServeProcess

FLOW = """
from millstream import Topology
flow = Topology("small")
flow.source("payments", schema="card string, eur double").where("eur > 10").to_topic("large")
"""

# Everything that comes with `pip install millstream`. A package more is a decision, so it is made here.
BROUGHT = {
    *("millstream", "confluent-kafka", "cramjam", "crc32c", "fsspec", "google-re2", "greenlet", "kio"),
    *("prometheus-client", "rich", "typer", "uvloop"),
    # what those need
    *("annotated-doc", "markdown-it-py", "mdurl", "pygments", "shellingham", "typing-extensions"),
}


@pytest.fixture(scope="module")
def broker(base: Environment) -> Iterator[ServeProcess]:
    with ServeProcess(base.path / "data", program=base.millstream) as broker:
        yield broker


def test_what_it_brings_is_little(base: Environment) -> None:
    assert base.packages() == BROUGHT
    assert base.megabytes() < 80


def test_the_wheel_has_no_sources_of_c_and_is_small(plain_wheel: Path) -> None:
    names = zipfile.ZipFile(plain_wheel).namelist()
    assert [name for name in names if name.endswith((".c", ".so"))] == []
    assert "millstream/py.typed" in names
    assert "millstream/console/static/console.css" in names
    assert any(name.endswith(".html") for name in names)
    assert plain_wheel.stat().st_size < 3e6


def test_a_broker_a_producer_and_a_consumer_run(base: Environment, broker: ServeProcess) -> None:
    at = ("--broker", broker.address)
    made = base.run("millstream", "topic", "create", "t", *at)
    assert made.returncode == 0, made.stderr
    (base.path / "lines").write_text("one\ntwo\n")
    sent = base.run("millstream", "produce", "t", "--file", "lines", *at)
    assert sent.returncode == 0, sent.stderr
    read = base.run("millstream", "consume", "t", "-o", "start", "-n", "2", *at)
    assert read.stdout.split() == ["one", "two"]


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("console", "console"),
        ("serve --listen 127.0.0.1:0 --console 127.0.0.1:0", "console"),
        ("registry", "registry"),
        ("serve --listen 127.0.0.1:0 --registry 127.0.0.1:0", "registry"),
        ("run flow.py", "spark"),
        ("graph flow.py", "spark"),
        ("state show checkpoint", "spark"),
        ("demo", "spark"),
        ("example run fraud", "spark"),
        ("view query v --views postgresql://nobody@127.0.0.1:1/none", "postgres"),
        ("produce t --broker {broker} --schema value.json --file value.json", "registry"),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    base: Environment, broker: ServeProcess, command: str, extra: str
) -> None:
    (base.path / "flow.py").write_text(FLOW)
    (base.path / "value.json").write_text("{}")
    done = base.run("millstream", *command.format(broker=broker.address).split())
    assert done.returncode != 0
    assert f"pip install 'millstream[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("import millstream.testing", "testing"),
        ("from millstream import Processor", "spark"),
    ],
)
def test_a_program_that_needs_an_extra_is_told_so_too(base: Environment, program: str, extra: str) -> None:
    done = base.run("python", "-c", program)
    assert f"pip install 'millstream[{extra}]'" in done.stderr.splitlines()[-1]
