"""``millstream serve``: runs a broker."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import pairs
from millstream.cli.terminal.output import note
from millstream.core.child_server import ChildServer
from millstream.core.errors import ConfigError, MillstreamError

if TYPE_CHECKING:
    from millstream.core.config import BrokerConfig

app = App()

DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="The data directory. [default: none; records are kept in memory]"
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="The address that clients connect to. [default: 127.0.0.1:9092]",
    ),
]
FollowOption = Annotated[
    str | None,
    typer.Option(
        "--follow",
        metavar="HOST:PORT",
        help="Run as a standby of this broker: keep a copy of everything it has, until promoted.",
    ),
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="The address to serve metrics and health checks on. [default: not served]",
    ),
]
RegistryAddressOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="HOST:PORT",
        help="The address to serve a schema registry on, in a separate process. [default: not served]",
    ),
]
ConsoleAddressOption = Annotated[
    str | None,
    typer.Option(
        "--console",
        metavar="HOST:PORT",
        help="The address to serve the console on, in a separate process. [default: not served]",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="A TOML file of settings. Command-line options override it."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a broker setting, or with topic.NAME=VALUE the default for all topics. May be repeated.",
    ),
]


@app.command(
    epilog=examples(
        ("millstream serve --data ./data", "records in ./data, clients at 127.0.0.1:9092"),
        ("millstream serve", "in memory only; everything is gone when it ends"),
        (
            "millstream serve --data /var/lib/millstream --listen 0.0.0.0:9092 --http :9644",
            "for other machines",
        ),
        ("millstream serve --data ./copy --follow db1:9092", "a standby of the broker at db1"),
        ("millstream serve --data ./data --registry :8081", "with a schema registry beside it"),
        ("millstream serve --data ./data --console :9090", "with the console, at http://127.0.0.1:9090"),
        (
            "millstream serve --config millstream.toml --set num.partitions=6",
            "settings from a file, and one more",
        ),
    )
)
def serve(
    data: DataOption = None,
    listen: ListenOption = None,
    follow: FollowOption = None,
    http: HttpOption = None,
    registry: RegistryAddressOption = None,
    console: ConsoleAddressOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    The broker prints its address on standard output once it answers. Log lines go to standard error.
    docs/reference/settings.md and docs/reference/topic-settings.md describe all settings.
    """
    from millstream.broker.server import run

    settings = _settings(
        config,
        {"data": data, "listen": listen, "follow": follow, "http.listen": http},
        pairs(set_ or (), "--set"),
    )
    beside = _servers(registry, console)

    def ready(address: str) -> None:
        for server in beside:
            server.start(address)
        print(address, flush=True)
        if sys.stdout.isatty():
            print(f"try: millstream topic list --broker {address}", file=sys.stderr)

    try:
        return run(settings, on_ready=ready)
    except ConfigError as error:
        # The settings are well formed, but the machine refuses them (a port in use, say). So this is not
        # reported as a usage error.
        raise MillstreamError(str(error)) from None
    finally:
        for server in beside:
            server.stop()


def _settings(file: Path | None, options: Mapping[str, str | None], changes: dict[str, str]) -> BrokerConfig:
    """The broker's settings: from the file, then from ``--set``, then from the options with names of their
    own.
    """
    from millstream.core.config import BrokerConfig, load_broker_config, with_changes

    settings = BrokerConfig() if file is None else load_broker_config(file)
    topic = {
        name.removeprefix("topic."): changes.pop(name) for name in [*changes] if name.startswith("topic.")
    }
    changes |= {name: value for name, value in options.items() if value is not None}
    settings = with_changes(settings, changes)
    if topic:
        settings = dataclasses.replace(settings, topic=with_changes(settings.topic, topic))
    return settings


def _servers(registry: str | None, console: str | None) -> list[ChildServer]:
    """The servers to run beside the broker. Raises if a package is missing, before the broker starts."""
    found = []
    if registry is not None:
        _need_registry()
        registry = _with_host(registry)
        found.append(ChildServer("schema registry", "millstream.registry", [registry], say=note))
    if console is not None:
        _need_console()
        arguments = [_with_host(console), *([] if registry is None else [f"http://{registry}"])]
        found.append(ChildServer("console", "millstream.console", arguments, say=note))
    return found


def _with_host(listen: str) -> str:
    host, _, port = listen.rpartition(":")
    return f"{host or '127.0.0.1'}:{port}"


def _need_registry() -> None:
    from millstream.registry import needs_extra

    with needs_extra():
        import starlette  # noqa: F401


def _need_console() -> None:
    from millstream.console import needs_extra

    with needs_extra():
        import litestar  # noqa: F401
