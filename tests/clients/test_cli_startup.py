"""What everyday commands load before they answer: imports are most of the time that they take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.serve import ServeProcess
from tests.support.topics import create_topic, produce, values

HEAVY = (
    *("hypothesis", "numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy", "pytest"),
    *("fastavro", "jsonschema", "jinja2", "starlette", "litestar", "uvicorn", "uvloop", "psycopg", "rich"),
    "pydantic",  # typer 0.29 imports it in every command, which then takes half as long again
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


@pytest.mark.parametrize(
    "command",
    [
        *("--help", "--version", "topic list", "topic describe {topic}", "produce {topic}"),
        *("consume {topic} -o start -n 1", "group list", "group lag", "txn list", "serve --help"),
    ],
)
def test_everyday_commands_load_nothing_that_they_do_not_need(broker: ServeProcess, command: str) -> None:
    topic = create_topic(broker.address, partitions=1)
    produce(broker.address, topic, values("a"))
    arguments = [*command.format(topic=topic).split()]
    program = (
        "import sys; from millstream.cli import execute; code = execute(sys.argv[1:])\n"
        f"print('loaded', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    address = [] if command.startswith(("-", "serve")) else ["--broker", broker.address]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, *address],
        input="b\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].strip() == "loaded"


def test_a_broker_loads_nothing_of_pipelines_console_and_registry() -> None:
    program = (
        "import sys, millstream.cli.serve, millstream.broker.server\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"uvloop"}
