"""``millstream serve``: runs a broker."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import pairs
from millstream.cli.terminal.output import note
from millstream.core.errors import ConfigError, MillstreamError

app = App()


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
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help="The data directory. [default: none; records are kept in memory]"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The address that clients connect to. [default: 127.0.0.1:9092]",
        ),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            "--follow",
            metavar="HOST:PORT",
            help="Run as a standby of this broker: keep a copy of everything it has, until promoted.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="The address to serve metrics and health checks on. [default: not served]",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="HOST:PORT",
            help="The address to serve a schema registry on, in a separate process. [default: not served]",
        ),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(
            "--console",
            metavar="HOST:PORT",
            help="The address to serve the console on, in a separate process. [default: not served]",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="A TOML file of settings. Command-line options override it."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set a broker setting, or with topic.NAME=VALUE the default for all topics. May be "
            "repeated.",
        ),
    ] = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C.

    The broker prints its address on standard output once it answers. Log lines go to standard error.
    docs/reference/settings.md and docs/reference/topic-settings.md describe all settings.
    """
    from millstream.broker.server import run
    from millstream.core.config import BrokerConfig, load_broker_config, with_changes

    settings = BrokerConfig() if config is None else load_broker_config(config)
    changes = pairs(set_ or (), "--set")
    topic_changes = {
        name.removeprefix("topic."): value for name, value in changes.items() if name.startswith("topic.")
    }
    changes = {name: value for name, value in changes.items() if not name.startswith("topic.")}
    for name, value in (("data", data), ("listen", listen), ("follow", follow), ("http.listen", http)):
        if value is not None:
            changes[name] = value
    settings = with_changes(settings, changes)
    if topic_changes:
        settings = dataclasses.replace(settings, topic=with_changes(settings.topic, topic_changes))
    registry_url = None if registry is None else f"http://{_with_host(registry)}"
    beside = []
    if registry is not None:
        _need_registry()
        beside.append(_Beside("schema registry", "millstream.registry", [_with_host(registry)]))
    if console is not None:
        _need_console()
        more = [] if registry_url is None else [registry_url]
        beside.append(_Beside("console", "millstream.console", [_with_host(console), *more]))

    def ready(address: str) -> None:
        for each in beside:
            each.start(address)
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
        for each in beside:
            each.stop()


def _with_host(listen: str) -> str:
    host, _, port = listen.rpartition(":")
    return f"{host or '127.0.0.1'}:{port}"


def _need_registry() -> None:
    """Report a missing package before the broker starts."""
    from millstream.registry import needs_extra

    with needs_extra():
        import starlette  # noqa: F401


def _need_console() -> None:
    from millstream.console import needs_extra

    with needs_extra():
        import litestar  # noqa: F401


_LONGEST = 20.0  # seconds that a server beside the broker may take to stop; it normally needs less


class _Beside:
    """A server in a child process, so that its work can't hold up the broker."""

    def __init__(self, what: str, module: str, arguments: list[str]) -> None:
        self._what = what
        self._module = module
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def start(self, broker: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, broker, *self._arguments],
            stdin=subprocess.PIPE,  # the child ends when this closes, even if this process is killed
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the broker, which then stops the child in order
        )
        threading.Thread(target=self._watch, name=self._module, daemon=True).start()

    def _watch(self) -> None:
        assert self._process is not None
        code = self._process.wait()
        if not self._stopping:
            note(f"the {self._what} has ended, with exit code {code}; the broker goes on without it")

    def stop(self) -> None:
        self._stopping = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(_LONGEST)
            except subprocess.TimeoutExpired:
                note(f"the {self._what} did not end in {_LONGEST:.0f} s; it is killed")
                self._process.kill()
                self._process.wait()
