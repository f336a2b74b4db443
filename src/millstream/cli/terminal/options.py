"""Options and arguments that many commands share."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.client.connect import DEFAULT_ADDRESS, Connection, load_profile
from millstream.core.errors import ConfigError

CLIENT_FILE = "~/.config/millstream/client.toml"
_PANEL = "Connection"


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """``name=value`` options as a dictionary."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {value!r} is not NAME=VALUE")
        found[name.strip()] = text
    return found


_SIZE_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}


def parse_size(text: str, option: str) -> int:
    """The number of bytes in a size such as ``64MB``."""
    number = text.rstrip("bBkKmMgGtT ").strip()
    unit = text[len(number) :].strip().lower()
    try:
        size = round(float(number) * _SIZE_UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise ConfigError(f"{option} {text!r} is not a size; write it like 500kB, 64MB or 1GB")
    return size


def _connect(
    *,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            "-b",
            envvar="MILLSTREAM_BROKER",
            metavar="HOST:PORT",
            help=f"The broker's address, or several separated by commas. [default: {DEFAULT_ADDRESS}]",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    set_client: Annotated[
        list[str] | None,
        typer.Option(
            "--set-client",
            "-X",
            metavar="NAME=VALUE",
            help="A property of librdkafka, the client library. It overrides all other options. May be "
            "repeated.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            help="Encrypt the connection. The other --tls-... options imply it.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    tls_ca: Annotated[
        str,
        typer.Option(metavar="FILE", help="The certificates to trust (PEM).", rich_help_panel=_PANEL),
    ] = "",
    tls_cert: Annotated[
        str, typer.Option(metavar="FILE", help="This client's certificate (PEM).", rich_help_panel=_PANEL)
    ] = "",
    tls_key: Annotated[
        str, typer.Option(metavar="FILE", help="This client's private key (PEM).", rich_help_panel=_PANEL)
    ] = "",
    sasl: Annotated[
        str,
        typer.Option(
            "--sasl",
            metavar="MECHANISM",
            help="The SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. PLAIN if only "
            "--user is given.",
            rich_help_panel=_PANEL,
        ),
    ] = "",
    user: Annotated[
        str,
        typer.Option(envvar="MILLSTREAM_USER", metavar="NAME", help="The SASL user.", rich_help_panel=_PANEL),
    ] = "",
    password: Annotated[
        str,
        typer.Option(
            envvar="MILLSTREAM_PASSWORD",
            metavar="TEXT",
            help="The SASL password. Prefer the environment variable: other users can see command lines.",
            rich_help_panel=_PANEL,
        ),
    ] = "",
    profile: Annotated[
        str,
        typer.Option(
            envvar="MILLSTREAM_PROFILE",
            metavar="NAME",
            help=f"Take options that are not given here from [profile.NAME] in {CLIENT_FILE}.",
            rich_help_panel=_PANEL,
        ),
    ] = "",
) -> Connection:
    kept = load_profile(_client_file(), profile) if profile else {}
    given = {"tls_ca": tls_ca, "tls_cert": tls_cert, "tls_key": tls_key, "user": user, "password": password}
    named = {
        name: str(value) for name, value in kept.items() if name not in ("broker", "tls", "sasl", "options")
    }
    named.update({name: value for name, value in given.items() if value})
    options = {str(name): str(value) for name, value in kept.get("options", {}).items()}
    options.update(pairs(set_client or (), "--set-client"))
    return Connection.of(
        broker or str(kept.get("broker", DEFAULT_ADDRESS)),
        tls=tls or bool(kept.get("tls", False)),
        sasl=sasl or str(kept.get("sasl", "")),
        options=options,
        **named,
    )


def _client_file() -> Path:
    return Path(os.environ.get("MILLSTREAM_CLIENT_FILE", CLIENT_FILE)).expanduser()


_PARAMETERS = list(inspect.signature(_connect, eval_str=True).parameters.values())


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all the connection options. It receives them as one argument, ``connection``."""
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "connection"
    ]
    names = [parameter.name for parameter in _PARAMETERS]

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        connection = _connect(**{name: arguments.pop(name) for name in names})
        return command(connection=connection, **arguments)

    keyword_only = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *_PARAMETERS)
    ]
    run.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword_only}
    return run


def _complete(incomplete: str, ask: Callable[[Any], list[str]]) -> list[str]:
    """Names for the shell's completion, from the broker named in the environment or the default one. Empty
    if no broker answers.
    """
    from dataclasses import replace

    from millstream.client.librdkafka.admin import Admin
    from millstream.core.errors import MillstreamError

    try:
        address = os.environ.get("MILLSTREAM_BROKER", DEFAULT_ADDRESS)
        with Admin(replace(Connection.of(address), patience=1.0), timeout=1.0) as admin:
            return [name for name in ask(admin) if name.startswith(incomplete)]
    except MillstreamError:
        return []


def complete_topic(incomplete: str) -> list[str]:
    return _complete(incomplete, lambda admin: list(admin.topics()))


def complete_group(incomplete: str) -> list[str]:
    return _complete(incomplete, lambda admin: [group.name for group in admin.groups()])


TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=complete_topic, show_default=False)
]
TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="The topics.", autocompletion=complete_topic, show_default=False),
]
GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="The consumer group.", autocompletion=complete_group, show_default=False
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, but change nothing.")]
