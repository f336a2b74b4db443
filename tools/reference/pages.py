"""Writes the reference documentation from the code (``make docs``).

The pages list every command, option, setting and metric, the public names of the Python package, and every
file.

    python -m tools.reference docs/reference [--check]

A test runs it with ``--check``, so the pages can't drift from the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from millstream.cli import app
from millstream.cli.terminal.help import HelpEntry, Page, page
from millstream.core.config import BrokerConfig, settings_of
from millstream.core.group_config import GroupConfig
from millstream.core.settings import Setting
from millstream.core.topic_config import TopicConfig
from millstream.pipeline.connector.options import OPTIONS
from tools.reference.metrics import metrics_page
from tools.reference.modules import modules_page
from tools.reference.python import python_page

_GENERATED = "<!-- Written by `make docs` from the code; changes here are overwritten. -->"


def pages(command: Any = None, context: Any = None) -> Iterator[Page]:
    """The help of every command, groups before their members."""
    if command is None:
        command = typer.main.get_command(app)
        context = command.make_context("millstream", [], resilient_parsing=True)
    yield page(command, context)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        found = command.get_command(context, name)
        yield from pages(found, type(context)(found, info_name=name, parent=context))


_ABOUT_COMMANDS = """\
Exit codes: 0 for success, 1 for failure, 2 for a usage error, 130 after Ctrl-C. Errors are one line on
standard error. Where a table is printed, `--output json` prints the same for programs. Tables that don't go
to a terminal are plain columns.

Commands that talk to a broker work with any Kafka, except `standby` and `promote`, which need a millstream
broker. They share the [connection options](#connection)."""

_ABOUT_BROKER_SETTINGS = """\
Write them in a TOML file and pass it with `millstream serve --config`: `"num.partitions" = 3`, or nested,
`[num]` and `partitions = 3`. Or set single ones with `--set num.partitions=3`. Settings marked *at start* are
read once; the others can be changed while the broker runs. Topic settings are on
[their own page](topic-settings.md)."""

_ABOUT_TOPIC_SETTINGS = """\
Set them with `millstream topic create -c retention.ms=3600000`, and change them with `millstream topic alter`
or any Kafka client. Defaults for all topics are under `[topic]` in `millstream.toml`, or are set with
`--set topic.retention.ms=3600000`. Settings marked *at creation* can't be changed later."""


def cli_page() -> str:
    """docs/reference/cli.md"""
    every = list(pages())
    out = ["# The command line", _ABOUT_COMMANDS]
    for each in every:
        out.append(f"{'##' if each.path.count(' ') < 2 else '###'} {each.path}")
        out.append(f"```\n{each.usage}\n```")
        out += [_escaped(paragraph) for paragraph in each.paragraphs if paragraph]
        for title, entries in each.sections:
            if title == "Connection":
                out.append("And the [connection options](#connection).")
            else:
                out.append(_table(title, entries))
        if each.examples:
            lines = [f"{example.term}  # {example.meaning}" for example in each.examples]
            out.append("\n".join(["```sh", *lines, "```"]))
    connection = next(entries for each in every for title, entries in each.sections if title == "Connection")
    out += ["## Connection", _table("Options", connection)]
    return "\n\n".join(part for part in out if part)


_ABOUT_GROUP_SETTINGS = """\
Set them for one group of the consumer protocol with `kafka-configs --entity-type groups` or any admin client,
whether or not the group exists yet; see [groups](../guides/groups.md). A group without its own value uses the
broker's `group.` setting of the same name. A group's own value must be between `group.consumer.min.` and
`group.consumer.max.`."""


def settings_page() -> str:
    """docs/reference/settings.md"""
    out = ["# Settings of a broker", _ABOUT_BROKER_SETTINGS]
    out += [_settings(settings_of(BrokerConfig).values(), "at start")]
    out += ["## Of a group", _ABOUT_GROUP_SETTINGS, _settings(settings_of(GroupConfig).values(), "")]
    return "\n\n".join(out)


def topic_settings_page() -> str:
    """docs/reference/topic-settings.md"""
    table = _settings(settings_of(TopicConfig).values(), "at creation")
    return "\n\n".join(["# Settings of a topic", _ABOUT_TOPIC_SETTINGS, table])


def _settings(settings: Iterable[Setting], fixed: str) -> str:
    rows = ["| setting | default | accepted | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *(_setting_row(setting, fixed) for setting in settings)])


def _setting_row(setting: Setting, fixed: str) -> str:
    default = setting.text(setting.default)
    meaning = setting.doc if setting.dynamic else f"*{fixed}* {setting.doc}"
    return (
        f"| `{setting.name}` | {f'`{default}`' if default else 'empty'} "
        f"| {_escaped(setting.accepted())} | {meaning.replace('|', '&#124;')} |"
    )


def _table(title: str, entries: tuple[HelpEntry, ...]) -> str:
    rows = [
        f"| `{entry.term.strip().replace('|', '&#124;')}` | {_escaped(entry.meaning)} |"
        for entry in entries
        if not entry.term.endswith("--help")
    ]
    return "\n".join([f"| {title.lower().removesuffix('s')} | |", "| --- | --- |", *rows]) if rows else ""


def _escaped(text: str) -> str:
    for mark in "\\|*<[":
        text = text.replace(mark, f"\\{mark}")
    return text


_ABOUT_SPARK_OPTIONS = """\
Pass them with `.option(name, value)` to `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`
with `format("millstream")`; see [topics as DataFrames](../guides/spark.md). Upper and lower case don't matter
in names. An unknown name is refused."""


def spark_page() -> str:
    """docs/reference/spark.md"""
    out = ["# Options of the Spark source and sink", _ABOUT_SPARK_OPTIONS]
    for title, use in (("Reading", "read"), ("Writing", "write"), ("Both", "both")):
        rows = ["| option | other names | meaning |", "| --- | --- | --- |"]
        for option in OPTIONS:
            if option.use == use:
                aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
                rows.append(f"| `{option.name}` | {aliases} | {option.doc.replace('|', '&#124;')} |")
        out += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(out)


PAGES = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "topic-settings.md": topic_settings_page,
    "spark.md": spark_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "modules.md": modules_page,
}


def text(name: str) -> str:
    """The content of a page, generated from the current code."""
    return f"{_GENERATED}\n\n{PAGES[name]()}\n"


def stale(directory: Path) -> list[str]:
    """The names of pages that are missing or differ from what the current code generates."""
    return [
        name
        for name in PAGES
        if not (directory / name).exists() or (directory / name).read_text() != text(name)
    ]


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0] if arguments else "docs/reference")
    if "--check" in arguments:
        old = stale(directory)
        if old:
            print(
                f"{', '.join(old)} in {directory}: not what the code says; run `make docs`", file=sys.stderr
            )
        return 1 if old else 0
    directory.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        (directory / name).write_text(text(name))
    return 0
