from __future__ import annotations

import socket
from pathlib import Path

import pytest

from millstream.client.connect import Connection, load_profile
from millstream.core.errors import BrokerUnavailable, ConfigError


def test_an_address_alone_is_plain_text_and_silent() -> None:
    properties = Connection.of("localhost:1234").properties()
    assert properties["bootstrap.servers"] == "localhost:1234"
    assert properties["log_level"] == 0
    assert "security.protocol" not in properties


def test_tls_and_sasl_options_become_librdkafkas_properties() -> None:
    assert Connection.of("h:1", tls=True).options == {"security.protocol": "SSL"}
    assert Connection.of("h:1", tls_ca="ca.pem").options == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
    }
    assert Connection.of("h:1", user="u", password="p").options == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    both = Connection.of("h:1", tls=True, sasl="SCRAM-SHA-256", user="u", password="p")
    assert both.options["security.protocol"] == "SASL_SSL"
    assert both.options["sasl.mechanism"] == "SCRAM-SHA-256"


def test_the_users_own_properties_win() -> None:
    connection = Connection.of("h:1", tls=True, options={"security.protocol": "SASL_SSL", "client.id": "me"})
    assert connection.properties({"client.id": "x", "linger.ms": 5}) == {
        "bootstrap.servers": "h:1",
        "client.id": "me",
        "log_level": 0,
        "linger.ms": 5,
        "security.protocol": "SASL_SSL",
    }


@pytest.mark.parametrize("address", ["", "host", "host:", ":9092", "host:x", "host:99999", "a:1,b"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not HOST:PORT|is not a port; ports are the numbers 1 to 65535"
    ):
        Connection.of(address).servers()


def test_several_servers_and_ipv6() -> None:
    assert Connection.of("a:1, [::1]:2").servers() == [("a", 1), ("::1", 2)]


def test_nobody_listening_is_said_at_once_with_what_to_do() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(
            BrokerUnavailable, match=rf"no broker answers at {address} \(.*\); start one with"
        ):
            Connection.of(address).check()


def test_a_profile_is_read_by_name(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('[profile.prod]\nbroker = "kafka:9093"\ntls = true\noptions = {"client.id" = "me"}\n')
    assert load_profile(file, "prod") == {
        "broker": "kafka:9093",
        "tls": True,
        "options": {"client.id": "me"},
    }
    with pytest.raises(ConfigError, match=r"no profile 'dev' \(it has: prod\)"):
        load_profile(file, "dev")
    file.write_text('[profile.prod]\nbrokr = "x"\n')
    with pytest.raises(ConfigError, match="no setting 'brokr'"):
        load_profile(file, "prod")
    file.write_text("[profile")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_profile(file, "prod")
    with pytest.raises(ConfigError, match="can't read"):
        load_profile(tmp_path / "none.toml", "prod")
