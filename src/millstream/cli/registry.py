"""``millstream registry``: runs a schema registry."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected
from millstream.client.connect import Connection

app = App()


@app.command(
    epilog=examples(
        ("millstream registry", "for the broker at 127.0.0.1:9092, served at 127.0.0.1:8081"),
        ("millstream registry --broker kafka:9092 --listen 0.0.0.0:8081", "beside Apache Kafka"),
        ("millstream registry --compatibility full", "new versions must be compatible both ways"),
        ("millstream serve --registry 127.0.0.1:8081", "a broker with a registry, in one command"),
    )
)
@connected
def registry(
    connection: Connection,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="The address that clients connect to over HTTP."),
    ] = "127.0.0.1:8081",
    topic: Annotated[
        str, typer.Option("--topic", metavar="TOPIC", help="The compacted topic that stores the schemas.")
    ] = "_schemas",
    compatibility: Annotated[
        str,
        typer.Option(
            "--compatibility",
            metavar="LEVEL",
            help="The compatibility level where no other has been set: none, backward, forward, full, or one "
            "of the last three with _transitive.",
        ),
    ] = "backward",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Another host name that clients may use, besides IP addresses, localhost and this machine's "
            "name. May be repeated.",
        ),
    ] = None,
) -> int:
    """Run a schema registry for millstream or Apache Kafka, until SIGTERM or Ctrl-C.

    The registry has the HTTP interface of Confluent's registry and keeps everything in one topic. Several
    registries may share a topic. The address is printed on standard output once the registry answers.
    """
    from millstream.registry import needs_extra

    with needs_extra():
        from millstream.core.serving import run, set_up_logging
        from millstream.registry.service.running import Registry

    set_up_logging()
    served = Registry(connection, listen=listen, topic=topic, level=compatibility, hosts=allow_host or ())
    return run(served, on_ready=lambda url: print(url, flush=True))
