"""``millstream example``: lists, shows and runs the example pipelines."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.output import Output, OutputOption, show_json
from millstream.core.errors import ConfigError
from millstream.core.units import DurationError, duration_ms

app = App(
    help="Example pipelines to read, run and start from.",
    epilog=examples(
        ("millstream example list", "what there is"),
        ("millstream example show pricing", "how it is written"),
        ("millstream example run pricing", "see it work, in a minute"),
        ("millstream new prices --from pricing", "your own project that starts from one"),
    ),
)


def complete_example(incomplete: str) -> list[str]:
    from millstream.examples.catalogue import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


ExampleArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The example.", autocompletion=complete_example, show_default=False),
]


@app.command(
    "list",
    epilog=examples(
        ("millstream example list", "what each shows, and which operators"),
        ("millstream example list --output json", "for programs"),
    ),
)
def list_(output: OutputOption = Output.TABLE) -> None:
    """List the examples: the name, what each shows, and the operators it uses."""
    from millstream.examples.catalogue import all_examples

    found = all_examples()
    if output is Output.JSON:
        show_json(
            [
                {"name": one.name, "shows": one.title, "operators": one.operators, "path": str(one.pipeline)}
                for one in found
            ]
        )
        return
    width = min(shutil.get_terminal_size().columns, 100)
    column = max(len(one.name) for one in found) + 2
    for one in found:
        name = f"{one.name:<{column}}"
        shown = f"\033[1m{name}\033[0m" if sys.stdout.isatty() else name
        text = textwrap.wrap(one.title, width - column) + textwrap.wrap(
            f"({', '.join(one.operators)})", width - column
        )
        print(shown + f"\n{' ' * column}".join(text))


@app.command(
    epilog=examples(
        ("millstream example show fraud", "its pipeline"),
        ("millstream example show fraud --file generate", "the generator of its events"),
        ("millstream example show fraud --path", "where the file is"),
    )
)
def show(
    name: ExampleArgument,
    file: Annotated[
        str, typer.Option("--file", metavar="NAME", help="The file to print: pipeline, generate or check.")
    ] = "pipeline",
    path: Annotated[bool, typer.Option("--path", help="Print only the path of the file.")] = False,
) -> None:
    """Print the source of an example's pipeline, just as you would write it."""
    from millstream.examples.catalogue import find

    example = find(name)
    if file.removesuffix(".py") not in ("pipeline", "generate", "check"):
        raise ConfigError(f"--file {file}: an example has pipeline, generate and check")
    source = example.directory / f"{file.removesuffix('.py')}.py"
    if path:
        print(source)
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.syntax import Syntax

        Console().print(Syntax(source.read_text(), "python", theme="ansi_dark", word_wrap=True))
    else:
        print(source.read_text(), end="")


@app.command(
    epilog=examples(
        ("millstream example run pricing", "a minute, on a broker of its own"),
        ("millstream example run trading --for 20s --seed 3", "shorter, and with other moves"),
        ("millstream example run pricing --console", "with its graph and its numbers in the browser"),
        ("millstream example run fraud --keep", "leave everything running, to look around"),
        ("millstream example run fraud --broker 127.0.0.1:9092", "on a running broker"),
    )
)
def run(
    name: ExampleArgument,
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long to generate events.")
    ] = "50s",
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            metavar="HOST:PORT",
            help="Use this running broker instead of starting one. The example's topics are deleted at the "
            "end, unless --keep is given.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", help="The random seed: another seed gives other events and other results."
        ),
    ] = 7,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep everything running until Ctrl-C, and keep the data."),
    ] = False,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Spark's master.")] = "local[2]",
    console: Annotated[
        bool, typer.Option("--console", help="Also serve the console, and print its address.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the console in the browser.")] = False,
) -> int:
    """Run an example: send its events to a broker, run its pipeline on Spark, and show what it finds.

    Events are generated from a seed, with things to find planted among them. At the end, what was found is
    compared with what was planted. The exit code is 1 if too much was missed, or too much was reported that
    was not planted. To watch it in the browser, pass --console, or start a console with the printed address
    of the broker.
    """
    from millstream.cli.stage.example_stage import play
    from millstream.examples.catalogue import find

    example = find(name)
    try:
        seconds = duration_ms(for_) / 1000
    except DurationError as error:
        raise ConfigError(f"--for: {error}") from None
    if seconds < 10:
        raise ConfigError(f"--for {for_}: in less than 10 seconds there is nothing to find")
    home = Path(f".millstream/example-{name}") if keep else None
    return play(
        example,
        seconds,
        address=broker,
        seed=seed,
        home=home,
        master=master,
        console=console or open_,
        open_=open_,
    )
