"""What others chose (client ids, keys, names) is shown to a terminal, never obeyed by it."""

from __future__ import annotations

import json

import pytest

from millstream.cli.terminal.output import for_terminal, note, printable, say, show_json, table_lines

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\rb\x00\u202ec"
SHOWN = r"a\x1b]0;owned\x07\x1b[2J\x9b31m\x0db\x00\u202ec"


def test_control_characters_are_written_out() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("two\nlines\there") == r"two\x0alines\x09here"
    assert printable("two\nlines\there", lines=True) == "two\nlines\there"
    assert printable("äöü 漢字 🙂") == "äöü 漢字 🙂"


@pytest.mark.parametrize("width", [None, 80])
def test_cells_of_a_table(width: int | None) -> None:
    (_, row) = table_lines(["client"], [[HOSTILE]], width)
    assert row == SHOWN


def test_sentences_notes_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"group {HOSTILE}")
    note(HOSTILE)
    said = capsys.readouterr()
    assert said.out == f"group {SHOWN}\n"
    assert said.err == f"millstream: {SHOWN}\n"
    show_json({"id": HOSTILE})
    text = capsys.readouterr().out
    assert not [letter for letter in text if not letter.isprintable() and letter != "\n"]
    assert json.loads(text) == {"id": HOSTILE}


def test_records_on_a_terminal() -> None:
    assert for_terminal(b"k\tv\x1b[2J\xff\n") == b"k\tv\\x1b[2J\\xff\n"
