"""``millstream console``: runs the web console."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from millstream.cli.help import App, examples
from millstream.cli.options import connected
from millstream.client.connect import Connection

app = App()


@app.command(
    epilog=examples(
        ("millstream console", "for the broker at 127.0.0.1:9092, served at http://127.0.0.1:9090"),
        (
            "millstream console --broker kafka:9092 --read-only",
            "for Apache Kafka; nothing can be changed",
        ),
        ("millstream console --views views.db --open", "with a pipeline's views, in a browser at once"),
        ("millstream console --listen 0.0.0.0:9090 --allow-host ops.example.com", "for other machines"),
        ("millstream serve --console 127.0.0.1:9090", "a broker with a console, in one command"),
    )
)
@connected
def console(
    connection: Connection,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where browsers reach it.")
    ] = "127.0.0.1:9090",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse everything that changes something.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            envvar="MILLSTREAM_REGISTRY",
            metavar="URL",
            help="The schema registry that records are decoded with. [default: none]",
        ),
    ] = None,
    views: Annotated[
        list[str] | None,
        typer.Option(
            "--views",
            metavar="FILE|URL",
            envvar="MILLSTREAM_VIEWS",
            help="A database of views to show, beside those of jobs that run: a SQLite file, or"
            " postgresql://...; any number of them.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="A name that browsers may call it by, beside addresses, localhost and this machine's own.",
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> int:
    """Run the console until SIGTERM or Ctrl-C, for our broker or any Kafka.

    Its address is printed on standard output once it answers. A broker that is away is shown as such, and
    the console goes on by itself when it is back. There is no log-in: it listens on this machine only unless
    told otherwise.
    """
    from millstream.console import needs_extra

    with needs_extra():
        from millstream.console.run import Console
        from millstream.console.settings import Settings
        from millstream.serving import run, set_up_logging

    set_up_logging()
    connection.servers()  # reports a malformed address now, before anything starts
    settings = Settings(
        connection,
        read_only=read_only,
        registry=registry,
        views=tuple(views or ()),
        hosts=tuple(allow_host or ()),
    )

    def ready(url: str) -> None:
        print(url, flush=True)
        if open_:
            webbrowser.open(url)

    return run(Console(settings, listen=listen), on_ready=ready)
