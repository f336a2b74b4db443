"""The documentation says what the code does, because it is written from it; these fail when it was not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import millstream
from millstream import client, testing
from millstream.broker.server import Server
from millstream.cli import COMMANDS
from millstream.core.config import BrokerConfig, settings_of, with_changes
from millstream.core.topic_config import TopicConfig
from tools.reference.metrics import exposed_name, families
from tools.reference.pages import pages, stale

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def test_the_reference_pages_are_what_the_code_would_write() -> None:
    assert stale(REFERENCE) == [], "run `make docs`"


def test_every_command_and_option_is_explained_and_has_an_example() -> None:
    every = list(pages())
    assert {page.path.split()[1] for page in every if " " in page.path} == set(COMMANDS)
    for page in every:
        assert page.paragraphs[0], f"{page.path} does not say what it does"
        for title, entries in page.sections:
            for entry in entries:
                assert entry.meaning.strip(), f"{page.path}: {title} {entry.term} is not explained"
        is_group = any(title == "Commands" for title, _ in page.sections)
        assert page.examples or is_group, f"{page.path} has no example"


def test_every_command_and_option_is_documented() -> None:
    written = (REFERENCE / "cli.md").read_text()
    for page in pages():
        assert f"# {page.path}\n" in written
        for _, entries in page.sections:
            for entry in entries:
                if not entry.term.endswith("--help"):
                    assert entry.term.strip().replace("|", "&#124;") in written


def test_every_setting_is_documented_with_its_default() -> None:
    for page, config in (("settings.md", BrokerConfig), ("topic-settings.md", TopicConfig)):
        written = (REFERENCE / page).read_text().splitlines()
        for name, setting in settings_of(config).items():
            assert setting.doc, f"{name} does not say what it means"
            rows = [line for line in written if line.startswith(f"| `{name}` |")]
            assert any(setting.doc.replace("|", "&#124;") in row for row in rows), f"{name} is not documented"


def test_examples_are_command_lines_that_parse() -> None:
    """An example that names an option which is not there is worse than none."""
    options = {
        page.path: {
            word.rstrip(",")
            for _, entries in page.sections
            for entry in entries
            for word in entry.term.split()
            if word.startswith("-")
        }
        for page in pages()
    }
    for page in pages():
        for example in page.examples:
            for part in example.term.split(" | "):
                words = part.split()
                if "millstream" not in words:
                    continue
                words = words[words.index("millstream") :]
                path = next(
                    path
                    for size in (3, 2, 1)
                    if (path := " ".join(words[:size])) in options and size <= len(words)
                )
                used = {word.partition("=")[0] for word in words if word.startswith("--")}
                assert used <= options[path], f"{example.term}: {used - options[path]}"


def test_every_public_name_is_documented() -> None:
    written = (REFERENCE / "python.md").read_text()
    for module in (millstream, client, testing):
        for name in module.__all__:
            path = f"{module.__name__}.{name}"
            assert (f"`{path}`" if name == "__version__" else f"### {path}\n") in written


async def _collected() -> list[str]:
    """What a broker really has, without an archive and a standby."""
    server = Server(with_changes(BrokerConfig(), {"listen": "127.0.0.1:0"}))
    await server.start()
    try:
        return [exposed_name(family) for family in server.collector.collect()]
    finally:
        await server.stop()


def test_every_metric_of_a_broker_is_documented_with_its_meaning() -> None:
    written = (REFERENCE / "metrics.md").read_text()
    declared = [exposed_name(family) for family in families()]
    assert set(asyncio.run(_collected())) <= set(declared)
    assert len(declared) == len(set(declared))
    for family in families():
        assert family.documentation
        assert f"| `{exposed_name(family)}` |" in written
