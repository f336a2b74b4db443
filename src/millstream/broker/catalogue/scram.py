"""SCRAM credentials (RFC 5802) as Kafka stores them: keys that can verify a password, not the password.

No I/O. Credentials are stored in the catalogue. Clients are not authenticated here yet.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import TypedDict

from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM

MECHANISMS = {1: "SHA-256", 2: "SHA-512"}
_LEAST, _MOST = 4096, 16384  # iterations


class Credential(TypedDict):
    """The credential of one user for one mechanism. Bytes are hexadecimal digits."""

    iterations: int
    salt: str
    stored_key: str
    server_key: str


Credentials = Mapping[str, Mapping[str, Credential]]  # by user and mechanism


def mechanism_name(number: int) -> str:
    if number not in MECHANISMS:
        raise RequestRefused(UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return MECHANISMS[number]


def credential(mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> Credential:
    """The credential to store for a salted password. Raises RequestRefused."""
    wrong = None
    if iterations < _LEAST:
        wrong = "Too few iterations"
    elif iterations > _MOST:
        wrong = "Too many iterations"
    elif not salt or not salted_password:
        wrong = "The salt and the salted password must not be empty"
    if wrong is not None:
        raise RequestRefused(UNACCEPTABLE_CREDENTIAL, wrong)
    digest = mechanism.lower().replace("-", "")

    def keyed(word: bytes) -> bytes:
        return hmac.new(salted_password, word, digest).digest()

    return {
        "iterations": iterations,
        "salt": salt.hex(),
        "stored_key": hashlib.new(digest, keyed(b"Client Key")).hexdigest(),
        "server_key": keyed(b"Server Key").hex(),
    }
