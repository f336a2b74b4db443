from __future__ import annotations

from pathlib import Path

import pytest

from millstream.cli.terminal.help import App
from millstream.cli.terminal.options import connected, pairs
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> object:
    """Runs a command with given options and returns the connection it was given."""
    import typer

    for name in ("BROKER", "USER", "PASSWORD", "PROFILE"):
        monkeypatch.delenv(f"MILLSTREAM_{name}", raising=False)
    seen: list[Connection] = []
    app = App()

    @app.command()
    @connected
    def look(connection: Connection, topic: str = "t") -> None:
        """Looks."""
        seen.append(connection)

    def run(*arguments: str) -> Connection:
        typer.main.get_command(app).main(args=list(arguments), standalone_mode=False)
        return seen[-1]

    return run


def test_the_address_comes_from_the_option_the_environment_or_the_default(
    connect: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(connect)
    assert connect().address == "127.0.0.1:9092"
    monkeypatch.setenv("MILLSTREAM_BROKER", "env:1")
    assert connect().address == "env:1"
    assert connect("-b", "given:2").address == "given:2"


def test_a_profile_gives_what_is_not_said_otherwise(
    connect: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert callable(connect)
    file = tmp_path / "client.toml"
    file.write_text(
        '[profile.prod]\nbroker = "prod:9093"\ntls_ca = "ca.pem"\nuser = "u"\nsasl = "SCRAM-SHA-512"\n'
        'options = {"socket.timeout.ms" = 5000}\n'
    )
    monkeypatch.setenv("MILLSTREAM_CLIENT_FILE", str(file))
    monkeypatch.setenv("MILLSTREAM_PASSWORD", "secret")
    connection = connect("--profile", "prod", "--user", "me", "-X", "client.id=x")
    assert connection.address == "prod:9093"
    assert connection.options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
        "socket.timeout.ms": "5000",
        "client.id": "x",
    }


def test_pairs_are_names_and_values() -> None:
    assert pairs(["a=1", "b = x=y", "c="], "-c") == {"a": "1", "b": " x=y", "c": ""}
    for wrong in ("a", "=1", ""):
        with pytest.raises(ConfigError, match="is not NAME=VALUE"):
            pairs([wrong], "-c")
