"""The command line, ``millstream``: one module for each command or group of commands. May import ``core``,
``client``, ``integration``, ``registry``, ``views``, ``jobs``, ``pipeline``, ``examples`` and ``console``;
nothing imports it. Only ``serve``, ``promote`` and ``log`` import ``broker``, only ``log`` imports ``log``,
and only ``stage`` starts an embedded broker. Start with ``COMMANDS`` below, the table of commands, and
``version``, the shortest of them. Each command's module has a typer application named ``app`` and is imported
when the command is used. It imports heavy modules (confluent-kafka, Spark, the broker) inside its functions,
so that ``--help`` and completion answer at once. Errors are raised as a MillstreamError, which ``execute``
prints as one line.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer

from millstream.cli.terminal.help import App, CommandGroup, examples
from millstream.cli.terminal.mistakes import said
from millstream.cli.terminal.output import printable
from millstream.core.errors import ConfigError, MillstreamError
from millstream.core.extras import spark_extra

# In the order that --help prints: start a broker, look at it, write, read, pipelines, repair.
COMMANDS = {
    "serve": "millstream.cli.serve",
    "console": "millstream.cli.console",
    "topic": "millstream.cli.topic.command",
    "produce": "millstream.cli.produce",
    "consume": "millstream.cli.consume",
    "tail": "millstream.cli.tail",
    "registry": "millstream.cli.registry",
    "schema": "millstream.cli.schema",
    "group": "millstream.cli.group",
    "txn": "millstream.cli.txn",
    "run": "millstream.cli.run.command",
    "graph": "millstream.cli.graph",
    "view": "millstream.cli.view",
    "state": "millstream.cli.state",
    "demo": "millstream.cli.demo",
    "example": "millstream.cli.example",
    "new": "millstream.cli.new",
    "standby": "millstream.cli.standby",
    "promote": "millstream.cli.promote",
    "log": "millstream.cli.log",
    "version": "millstream.cli.version",
}


class Commands(CommandGroup):
    """The commands in ``COMMANDS``. Each module is imported when its command is first needed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        if self.commands[cmd_name] is None:
            command = typer.main.get_command(importlib.import_module(module).app)
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # `millstream ... | head`: the reader has what it wanted and has closed the pipe. Standard output
            # goes to /dev/null, so that Python can flush its buffer at exit without failing again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0


app = App(
    name="millstream",
    cls=Commands,
    help="Event streaming in one process: a broker that speaks the Kafka protocol, and pipelines on Spark.",
    epilog=examples(
        ("millstream serve --data ./data", "start a broker"),
        ("millstream topic create payments -p 3", "a topic of three partitions"),
        ("echo hello | millstream produce payments", "write a record"),
        ("millstream consume payments -o start", "read, then wait for new records"),
    ),
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from millstream.cli.version import millstream_version

        print(f"millstream {millstream_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point of the ``millstream`` script."""
    sys.exit(execute(sys.argv[1:]))


def execute(arguments: list[str]) -> int:
    """Run one command line. The exit code is 0 on success, 1 on failure and 2 for a usage error."""
    try:
        with spark_extra():
            result = typer.main.get_command(app).main(
                args=arguments, prog_name="millstream", standalone_mode=False
            )
    except MillstreamError as error:
        return _say(str(error), 2 if isinstance(error, ConfigError) else 1)
    except typer.Abort:
        return _say("stopped", 1)
    except Exception as error:
        # A wrong option or argument. Recognised by its attributes, because the exception classes differ
        # between versions of the library.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(describe(), file=sys.stderr)
            return 2
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "millstream"
        return _say(f"{said(error)}; see `{path} --help`", 2)
    return result if isinstance(result, int) else 0


def _say(message: str, code: int) -> int:
    if sys.stderr.isatty():
        print(f"\033[31mmillstream:\033[0m {printable(message, lines=True)}", file=sys.stderr)
    else:
        print(f"millstream: {printable(message, lines=True)}", file=sys.stderr)
    return code
