"""An address and how to connect to it, as librdkafka's configuration.

Everything that opens a connection takes a ``Connection``. In this package only this module and ``security``
know librdkafka's property names for servers, TLS and SASL.
"""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.client.text.position import TopicPartition
from millstream.core.address import host_and_port
from millstream.core.errors import BrokerUnavailable, ConfigError

DEFAULT_ADDRESS = "127.0.0.1:9092"

# What profiles and the command line call a property, and what librdkafka calls it.
_PROPERTIES = {
    "tls_ca": "ssl.ca.location",
    "tls_cert": "ssl.certificate.location",
    "tls_key": "ssl.key.location",
    "tls_key_password": "ssl.key.password",
    "user": "sasl.username",
    "password": "sasl.password",
}


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the brokers are, and librdkafka's properties for connecting to them.

    >>> Connection("broker-1:9092,broker-2:9092").servers()
    [('broker-1', 9092), ('broker-2', 9092)]
    """

    address: str = DEFAULT_ADDRESS
    options: Mapping[str, str] = field(default_factory=dict)
    patience: float = 10.0  # seconds to wait for a broker that accepts but does not answer

    @classmethod
    def of(
        cls,
        address: str = DEFAULT_ADDRESS,
        *,
        tls: bool = False,
        sasl: str = "",
        options: Mapping[str, str] | None = None,
        **named: str,
    ) -> Connection:
        """A connection from the names people use (``tls_ca``, ``user``, ...). ``options`` override them.

        >>> connection = Connection.of("broker:9093", tls=True, user="ann", password="secret")
        >>> connection.options["security.protocol"]
        'SASL_SSL'
        """
        properties = {}
        for name, value in named.items():
            if name not in _PROPERTIES:
                raise ConfigError(f"unknown connection setting {name!r}; there are {', '.join(_PROPERTIES)}")
            if value:
                properties[_PROPERTIES[name]] = value
        encrypted = tls or any(name.startswith("ssl.") for name in properties)
        authenticated = bool(sasl) or "sasl.username" in properties
        if authenticated:
            properties["sasl.mechanism"] = sasl or "PLAIN"
        if encrypted or authenticated:
            protocol = ("SASL_" if authenticated else "") + ("SSL" if encrypted else "PLAINTEXT")
            properties["security.protocol"] = protocol
        return cls(address, {**properties, **(options or {})})

    def servers(self) -> list[tuple[str, int]]:
        """Host and port of every bootstrap server.

        >>> Connection("localhost:9092").servers()
        [('localhost', 9092)]
        """
        found = []
        for part in self.address.split(","):
            try:
                found.append(host_and_port(part.strip().rpartition("://")[2]))
            except ConfigError as error:
                raise ConfigError(f"the broker's address: {error}") from None
        return found

    def check(self) -> None:
        """Raise BrokerUnavailable at once if nothing listens, instead of after librdkafka's patience.

        >>> Connection(address).check()
        """
        reasons = []
        for host, port in self.servers():
            try:
                socket.create_connection((host, port), timeout=self.patience).close()
                return
            except OSError as error:
                reasons.append(error.strerror or str(error) or type(error).__name__)
        raise self.unavailable(reasons[0])

    def unavailable(self, reason: str) -> BrokerUnavailable:
        reason = reason[:1].lower() + reason[1:]
        return BrokerUnavailable(
            f"no broker answers at {self.address} ({reason}); "
            "start one with `millstream serve` or pass --broker"
        )

    def properties(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """librdkafka's configuration. ``more`` is what one use of it needs. The user's own options win.

        >>> Connection("localhost:9092").properties({"group.id": "billing"})["group.id"]
        'billing'
        """
        return {
            "bootstrap.servers": self.address,
            "client.id": "millstream",
            # Calls and callbacks report errors; librdkafka's log lines would report them a second time.
            "log_level": 0,
            **(more or {}),
            **self.options,
        }

    def open(self, factory: Callable[[dict[str, Any]], Any], properties: dict[str, Any]) -> Any:
        """A librdkafka client. A property that it refuses is reported as the user's mistake.

        >>> consumer = Connection(address).open(confluent_kafka.Consumer, {"group.id": "billing"})
        >>> consumer.close()
        """
        from confluent_kafka import KafkaException

        try:
            return factory(properties)
        except KafkaException as error:
            raise ConfigError(
                f"librdkafka refuses the connection's settings: {error.args[0].str()}"
            ) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"librdkafka refuses the connection's settings: {error}") from None


def load_profile(path: Path, name: str) -> dict[str, Any]:
    """A named set of connection settings from a TOML file, ``[profile.NAME]``."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    profiles = document.get("profile", {})
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise ConfigError(f"{path} has no profile {name!r} (it has: {known})")
    allowed = {"broker", "tls", "sasl", "options", *_PROPERTIES}
    for key in profiles[name]:
        if key not in allowed:
            raise ConfigError(
                f"{path}: [profile.{name}] has no setting {key!r}; there are {', '.join(sorted(allowed))}"
            )
    return dict(profiles[name])


def to_librdkafka(partition: TopicPartition, offset: int = -1001) -> Any:
    """A partition, and an offset in it, as a confluent-kafka object."""
    from confluent_kafka import TopicPartition as Theirs

    return Theirs(partition.topic, partition.partition, offset)


def from_librdkafka(partition: Any) -> TopicPartition:
    """The partition in a confluent-kafka object, without its other fields."""
    return TopicPartition(partition.topic, partition.partition)
