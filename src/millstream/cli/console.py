"""``millstream console``: runs the web console."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected
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
        str, typer.Option("--listen", metavar="HOST:PORT", help="The address that browsers connect to.")
    ] = "127.0.0.1:9090",
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            envvar="MILLSTREAM_REGISTRY",
            metavar="URL",
            help="The schema registry for decoding records. [default: none]",
        ),
    ] = None,
    views: Annotated[
        list[str] | None,
        typer.Option(
            "--views",
            metavar="FILE|URL",
            envvar="MILLSTREAM_VIEWS",
            help="A database of views to show, in addition to those that jobs report: a SQLite file or "
            "postgresql://... May be repeated.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Another host name that browsers may use, besides IP addresses, localhost and this "
            "machine's name. May be repeated.",
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the console in the browser.")] = False,
) -> int:
    """Run the web console for millstream or Apache Kafka, until SIGTERM or Ctrl-C.

    The console prints its address on standard output once it answers. If the broker is unreachable, the
    console says so, and recovers when the broker is back. There is no log-in, so by default the console
    listens on this machine only.
    """
    from millstream.console import needs_extra

    with needs_extra():
        from millstream.console.run import Console
        from millstream.console.settings import ConsoleSettings
        from millstream.core.serving import run, set_up_logging

    set_up_logging()
    connection.servers()  # reports a malformed address now, before anything starts
    settings = ConsoleSettings(
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
