from __future__ import annotations

import secrets
from typing import Any

import pytest

from millstream.client.protocol.security import authentication, protocol_of, tls_context
from millstream.core.errors import BrokerUnavailable, ConfigError

SCRAM = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "user", "sasl.password": "pencil"}
# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: NONCE)


@pytest.mark.usefixtures("nonce")
def test_scram_follows_the_rfcs_example() -> None:
    conversation = authentication(SCRAM)
    assert next(conversation) == b"n,,n=user,r=" + NONCE.encode()
    assert conversation.send(CHALLENGE) == PROOF
    with pytest.raises(StopIteration):
        conversation.send(SIGNATURE)


@pytest.mark.usefixtures("nonce")
def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    conversation = authentication(SCRAM)
    next(conversation)
    conversation.send(CHALLENGE)
    with pytest.raises(BrokerUnavailable, match="signature is wrong"):
        conversation.send(SIGNATURE.replace(b"6rri", b"7rri"))


@pytest.mark.usefixtures("nonce")
def test_a_challenge_for_somebody_else_is_refused() -> None:
    conversation = authentication(SCRAM)
    next(conversation)
    with pytest.raises(BrokerUnavailable, match="is not valid"):
        conversation.send(CHALLENGE.replace(b"rOpr", b"xxxx"))


def test_plain_sends_user_and_password() -> None:
    options = {"sasl.username": "ada", "sasl.password": "p,w"}
    assert next(authentication(options)) == b"\0ada\0p,w"


def test_the_java_clients_way_to_name_a_user_is_understood() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="p\\"w";'
    assert next(authentication({"sasl.jaas.config": jaas})) == b'\0ada\0p"w'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sasl.username": None}, "give sasl.username and sasl.password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "'OAUTHBEARER' is not one of PLAIN, SCRAM-SHA-256"),
    ],
)
def test_what_is_missing_or_not_served_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        next(authentication({"sasl.username": "", "sasl.password": "", **options}))


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="'tls' is not one of plaintext, ssl"):
        protocol_of({"security.protocol": "tls"})


def test_a_missing_certificate_is_named() -> None:
    with pytest.raises(ConfigError, match=r"ssl.ca.location: there is no file /no/such.pem"):
        tls_context({"ssl.ca.location": "/no/such.pem"})


def test_a_java_trust_store_is_explained() -> None:
    with pytest.raises(ConfigError, match="only PEM"):
        tls_context({"ssl.truststore.location": "trust.jks"})
