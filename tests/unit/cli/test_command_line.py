from __future__ import annotations

import subprocess
import sys

import pytest

from millstream.cli import COMMANDS, execute
from millstream.cli.terminal.help import HelpEntry, Page, render
from tools.reference.pages import pages

HEAVY = ("confluent_kafka", "pyspark", "kio", "uvloop", "pyarrow", "numpy", "rich", "asyncio", "pydantic")


def test_help_answers_without_loading_anything_heavy() -> None:
    program = (
        "import sys; from millstream.cli import execute; execute(['--help']); "
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("width", [80, 120])
def test_help_fits_the_terminal(width: int) -> None:
    for page in pages():
        for line in render(page, width).splitlines():
            term_alone = line.startswith("  ") and not line.startswith(
                "    "
            )  # an option or example too long
            assert len(line) <= width or term_alone, f"{page.path}: {line!r}"


def test_examples_stand_beside_their_meaning_where_there_is_room() -> None:
    page = Page("m", "m", ("Does.",), (), (HelpEntry("m a", "one"), HelpEntry("m bcd", "two")))
    assert render(page, 80).splitlines()[-2:] == ["  m a    one", "  m bcd  two"]
    assert render(page, 11).splitlines()[-4:] == ["  m a", "      one", "  m bcd", "      two"]


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out.startswith("millstream ")
    assert execute(["nonsense"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert execute([]) == 2
    assert "Commands:" in capsys.readouterr().err
    assert execute(["topic"]) == 2
    assert "add-partitions" in capsys.readouterr().err
    assert execute(["topic", "list", "--broker", "127.0.0.1:1"]) == 1
    assert "no broker answers" in capsys.readouterr().err


def test_the_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from millstream.cli import main; main()"],
            env={
                "_MILLSTREAM_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
            },
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    assert completed("millstream gro") == ["group"]
    assert completed("millstream topic tr") == ["trim"]
    assert "--partition" in completed("millstream consume t --par")
