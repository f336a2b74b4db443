"""``--help`` as data: printed in a terminal, and written into the documentation by ``tools.reference``.

Commands are made with ``App`` instead of ``typer.Typer``. Their help fits 80 columns, lists the options of
the connection apart from the command's own, ends with examples, and appears without loading anything heavy.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])


class HelpEntry(NamedTuple):
    """One line of a list: a command, an argument, an option or an example, and its meaning."""

    term: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Page:
    """The help of one command."""

    path: str
    usage: str
    paragraphs: tuple[str, ...]
    sections: tuple[tuple[str, tuple[HelpEntry, ...]], ...]
    examples: tuple[HelpEntry, ...]


def examples(*lines: tuple[str, str]) -> str:
    """The ``epilog`` of a command: command lines, each with what it does."""
    return "\n".join(f"{command}\t{meaning}" for command, meaning in lines)


def page(command: Any, context: Any) -> Page:
    """The help of a command or a group of commands."""
    sections: dict[str, list[HelpEntry]] = {}
    pieces = []
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            sections.setdefault("Arguments", []).append(HelpEntry(_metavar(parameter), parameter.help or ""))
            pieces.append(_metavar(parameter))
        else:
            title = getattr(parameter, "rich_help_panel", None) or "Options"
            sections.setdefault(title, []).append(_option(parameter))
    if isinstance(command, TyperGroup):
        pieces.append("COMMAND ...")
        sections["Commands"] = [
            HelpEntry(name, _summary(found))
            for name in command.list_commands(context)
            if (found := command.get_command(context, name)) is not None and not found.hidden
        ]
    order = ["Commands", "Arguments", "Options"]
    ordered = sorted(sections, key=lambda title: order.index(title) if title in order else len(order))
    return Page(
        context.command_path,
        " ".join([context.command_path, "[OPTIONS]", *pieces]),
        tuple(" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")),
        tuple((title, tuple(sections[title])) for title in ordered),
        tuple(HelpEntry(*line.split("\t")) for line in (command.epilog or "").splitlines()),
    )


def _option(option: Any) -> HelpEntry:
    names = sorted(option.opts, key=lambda name: name.startswith("--")) + option.secondary_opts
    term = ", ".join(names)
    if not names[0].startswith("-") or names[0].startswith("--"):
        term = "    " + term  # aligns long names, whether or not the option has a short one
    if not option.is_flag:
        term += f" {_metavar(option)}"
    meaning = option.help or ""
    if option.required:
        meaning += " [required]"
    if not (option.is_flag or option.default in (None, "") or option.show_default is False):
        meaning += f" [default: {getattr(option.default, 'value', option.default)}]"
    if option.envvar:
        meaning += f" [environment: {option.envvar}]"
    return HelpEntry(term, meaning)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _summary(command: Any) -> str:
    first = inspect.cleandoc(command.help or "").partition("\n\n")[0]
    return " ".join(first.split())


def render(page: Page, width: int, *, bold: Callable[[str], str] = str) -> str:
    """A page as text for a terminal."""
    out = [f"{bold('Usage:')} {page.usage}", ""]
    for paragraph in page.paragraphs:
        out += [*textwrap.wrap(paragraph, width), ""]
    for title, entries in page.sections:
        out.append(bold(f"{title}:"))
        column = min(28, max(len(entry.term) for entry in entries)) + 4
        for entry in entries:
            lines = textwrap.wrap(entry.meaning, max(24, width - column)) or [""]
            if len(entry.term) > column - 4:
                out.append(f"  {entry.term}")
            else:
                out.append(f"  {entry.term.ljust(column - 2)}{lines.pop(0)}".rstrip())
            out += [" " * column + line for line in lines]
        out.append("")
    if page.examples:
        out.append(bold("Examples:"))
        column = max(len(entry.term) for entry in page.examples) + 2
        beside = all(column + 2 + len(entry.meaning) <= width for entry in page.examples)
        for term, meaning in page.examples:
            out += [f"  {term.ljust(column)}{meaning}"] if beside else [f"  {term}", f"      {meaning}"]
        out.append("")
    return "\n".join(out)


def _help(command: Any, context: Any, formatter: Any) -> None:
    width = min(shutil.get_terminal_size().columns, 100)
    styled = sys.stdout.isatty()
    formatter.write(
        render(page(command, context), width, bold=(lambda text: f"\033[1m{text}\033[0m") if styled else str)
    )


class Command(TyperCommand):
    """A command whose ``--help`` is printed by ``render``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _help(self, ctx, formatter)


class CommandGroup(TyperGroup):
    """A group of commands whose ``--help`` is printed by ``render``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _help(self, ctx, formatter)


class App(typer.Typer):
    """A typer application whose commands print their ``--help`` with ``render``."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **{
                "cls": CommandGroup,
                "add_completion": False,
                "no_args_is_help": True,
                "rich_markup_mode": None,
                "pretty_exceptions_enable": False,
                **settings,
            }
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        return super().command(name, **{"cls": Command, "no_args_is_help": False, **settings})
