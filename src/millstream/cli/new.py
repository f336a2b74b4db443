"""``millstream new``: starts a project from one of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.example import complete_example
from millstream.cli.terminal.help import App, examples
from millstream.core.errors import ConfigError

app = App()


@app.command(
    epilog=examples(
        ("millstream new prices", "from the example fraud"),
        ("millstream new prices --from pricing", "from another one; `millstream example list`"),
    )
)
def new(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The directory for the project. It is created if it does not exist.",
            show_default=False,
        ),
    ],
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="EXAMPLE", help="The example to start from.", autocompletion=complete_example
        ),
    ] = "fraud",
) -> None:
    """Create a project: a pipeline, a generator of events, and a test that passes.

    All files are yours to edit, and each says what to change first. Existing files are never overwritten.
    """
    from millstream.cli.project import files_of
    from millstream.examples.catalogue import find

    files = files_of(find(from_), directory.resolve().name)
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is a file; give a directory")
    there = [name for name in files if (directory / name).exists()]
    if there:
        raise ConfigError(
            f"{directory} has {', '.join(there)} already, and nothing is overwritten; give another directory"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)
    except OSError as error:
        raise ConfigError(f"{directory} can't be written: {error.strerror}") from None
    print(f"{directory}: {', '.join(files)}")
    print("What to do next:")
    for command, meaning in (
        (f"cd {directory} && pytest", "its test, without a broker or Spark"),
        ("millstream graph pipeline.py", "the pipeline as a picture"),
        ("cat README.md", "how to run it, and what to change first"),
    ):
        print(f"  {command}\n      {meaning}")
