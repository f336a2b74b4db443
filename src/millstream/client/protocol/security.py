"""TLS and SASL for millstream's own connections, from the properties of librdkafka and Java's client.

PLAIN and SCRAM are supported: they need nothing but the standard library. For anything else (Kerberos,
OAuth) the error says so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import socket
import ssl
from collections.abc import Generator, Mapping
from pathlib import Path

from millstream.core.errors import BrokerUnavailable, ConfigError

PROPERTIES = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def protocol_of(options: Mapping[str, str]) -> str:
    protocol = options.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol: {protocol!r} is not one of {', '.join(_PROTOCOLS)}")
    return protocol


def uses_tls(options: Mapping[str, str]) -> bool:
    return protocol_of(options).endswith("ssl")


def uses_sasl(options: Mapping[str, str]) -> bool:
    return protocol_of(options).startswith("sasl")


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """A context that checks the broker's certificate and name unless the options say not to."""
    authority = options.get("ssl.ca.location")
    if options.get("ssl.truststore.location"):
        if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise ConfigError(
                "ssl.truststore.location: only PEM files can be read here; export the certificates"
                " (keytool -exportcert -rfc) and give them as ssl.ca.location"
            )
        authority = options["ssl.truststore.location"]
    try:
        context = ssl.create_default_context(cafile=authority, cadata=options.get("ssl.ca.pem"))
        if certificate := options.get("ssl.certificate.location"):
            context.load_cert_chain(
                certificate, options.get("ssl.key.location"), options.get("ssl.key.password")
            )
    except OSError as error:  # includes ssl.SSLError
        for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"):
            if name in options and not Path(options[name]).is_file():
                raise ConfigError(f"{name}: there is no file {options[name]}") from None
        raise ConfigError(f"the TLS certificates can't be used: {error}") from None
    if options.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    return context


def wrap(plain: socket.socket, host: str, options: Mapping[str, str]) -> socket.socket:
    """The socket with TLS on it, after the handshake."""
    try:
        return tls_context(options).wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise BrokerUnavailable(
            f"the certificate of {host} is not trusted ({error.verify_message}); give the authority that"
            " signed it as ssl.ca.location"
        ) from None
    except ssl.SSLError as error:
        raise BrokerUnavailable(
            f"{host} does not speak TLS ({error.reason or error}); is security.protocol right?"
        ) from None


def mechanism_of(options: Mapping[str, str]) -> str:
    mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", "PLAIN")).upper()
    if mechanism != "PLAIN" and mechanism not in _SCRAM:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is not one of PLAIN, {', '.join(_SCRAM)}")
    return mechanism


def _credentials(options: Mapping[str, str]) -> tuple[str, str]:
    user, password = options.get("sasl.username"), options.get("sasl.password")
    jaas = options.get("sasl.jaas.config", "")
    if user is None and (found := re.search(r'\busername\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)):
        user = re.sub(r"\\(.)", r"\1", found[1])
    if password is None and (found := re.search(r'\bpassword\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)):
        password = re.sub(r"\\(.)", r"\1", found[1])
    if user is None or password is None:
        raise ConfigError("SASL needs a user: give sasl.username and sasl.password (or sasl.jaas.config)")
    return user, password


def authentication(options: Mapping[str, str]) -> Generator[bytes, bytes, None]:
    """The exchange of the mechanism: yields what to send, and is sent what the broker answered."""
    user, password = _credentials(options)
    mechanism = mechanism_of(options)
    if mechanism == "PLAIN":
        yield f"\0{user}\0{password}".encode()
    else:
        yield from _scram(_SCRAM[mechanism], user, password)


def _scram(digest: str, user: str, password: str) -> Generator[bytes, bytes, None]:
    """RFC 5802 without channel binding."""
    nonce = secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
    if not fields.get("r", "").startswith(nonce) or "s" not in fields or not fields.get("i", "").isdigit():
        raise BrokerUnavailable("the broker's SCRAM challenge is not valid; is the mechanism right?")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))

    def keyed(key: bytes, text: str) -> bytes:
        return hmac.digest(key, text.encode(), digest)

    client_key = keyed(salted, "Client Key")
    last = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge},{last}"
    signature = keyed(hashlib.new(digest, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = (yield f"{last},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = base64.b64encode(keyed(keyed(salted, "Server Key"), signed)).decode()
    if not hmac.compare_digest(answer, f"v={expected}"):
        raise BrokerUnavailable("the broker does not know the password either: its SCRAM signature is wrong")
