"""ACLs, SASL, delegation tokens and SCRAM credentials, where there is no access control yet.

There are no access rules and no authentication. Requests get the responses that Kafka gives on a plain
listener without an authorizer. SCRAM credentials are stored, for when authentication is added.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.scram import MECHANISMS, Credential, credential, mechanism_name
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    DUPLICATE_RESOURCE,
    ILLEGAL_SASL_STATE,
    NONE,
    RESOURCE_NOT_FOUND,
    SECURITY_DISABLED,
    UNACCEPTABLE_CREDENTIAL,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import (
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from millstream.wire.codec.schema_codec import Answer

_NO_RULES = "No Authorizer is configured."
_NO_TIME = -1


@serves(DESCRIBE_ACLS, versions=(1, 3))
def describe_acls(node: Node, request: Any, client: Client) -> Answer:
    return {
        "error_code": SECURITY_DISABLED,
        "error_message": "No Authorizer is configured on the broker",
        "resources": [],
    }


@serves(CREATE_ACLS, versions=(1, 3))
def create_acls(node: Node, request: Any, client: Client) -> Answer:
    refused = {"error_code": SECURITY_DISABLED, "error_message": _NO_RULES}
    return {"results": [refused] * len(request.creations)}


@serves(DELETE_ACLS, versions=(1, 3))
def delete_acls(node: Node, request: Any, client: Client) -> Answer:
    refused = {"error_code": SECURITY_DISABLED, "error_message": _NO_RULES, "matching_acls": []}
    return {"filter_results": [refused] * len(request.filters)}


@serves(SASL_HANDSHAKE, versions=(0, 1))
def sasl_handshake(node: Node, request: Any, client: Client) -> Answer:
    """Refused: a client wants to authenticate, but the listener asks for no authentication."""
    return {"error_code": ILLEGAL_SASL_STATE, "mechanisms": []}


@serves(SASL_AUTHENTICATE, versions=(0, 2))
def sasl_authenticate(node: Node, request: Any, client: Client) -> Answer:
    message = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ILLEGAL_SASL_STATE, "error_message": message, "auth_bytes": b""}


@serves(CREATE_DELEGATION_TOKEN, versions=(1, 3))
def create_delegation_token(node: Node, request: Any, client: Client) -> Answer:
    times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), _NO_TIME)
    return {"error_code": DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, **times}


@serves(RENEW_DELEGATION_TOKEN, versions=(1, 2))
def renew_delegation_token(node: Node, request: Any, client: Client) -> Answer:
    return {"error_code": DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "expiry_timestamp": _NO_TIME}


@serves(EXPIRE_DELEGATION_TOKEN, versions=(1, 2))
def expire_delegation_token(node: Node, request: Any, client: Client) -> Answer:
    return {"error_code": DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "expiry_timestamp": _NO_TIME}


@serves(DESCRIBE_DELEGATION_TOKEN, versions=(1, 3))
def describe_delegation_token(node: Node, request: Any, client: Client) -> Answer:
    return {"error_code": DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "tokens": []}


@serves(DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0))
def describe_user_scram_credentials(node: Node, request: Any, client: Client) -> Answer:
    """Which users have credentials. Never returns the credentials."""
    users = list(node.catalogue.scram)
    if request.users:
        users = [user.name for user in request.users]
    numbers = {name: number for number, name in MECHANISMS.items()}
    results = []
    for user, count in sliced(Counter(users).items()):
        own = node.catalogue.scram.get(user, {})
        infos = [
            {"mechanism": numbers[mechanism], "iterations": kept["iterations"]}
            for mechanism, kept in own.items()
        ]
        error, message = NONE, None
        if count > 1:
            error, infos = DUPLICATE_RESOURCE, []
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        elif not own:
            error = RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {user}"
        results.append(
            {"user": user, "error_code": error, "error_message": message, "credential_infos": infos}
        )
    return {"error_code": NONE, "error_message": None, "results": results}


@serves(ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0))
async def alter_user_scram_credentials(node: Node, request: Any, client: Client) -> Answer:
    """Users are independent: an error in one does not keep the others from being changed."""
    results: dict[str, tuple[int, str | None]] = {}
    async with node.catalogue.altering:
        changed = {user: dict(own) for user, own in node.catalogue.scram.items()}
        changes = (*request.deletions, *request.upsertions)
        named = Counter((each.name, each.mechanism) for each in sliced(changes))
        for change in sliced(changes):
            if results.get(change.name, (NONE, None))[0]:
                continue
            try:
                if named[change.name, change.mechanism] > 1:
                    raise RequestRefused(
                        DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                    )
                _alter(changed, change)
                results[change.name] = (NONE, None)
            except RequestRefused as refused:
                results[change.name] = (refused.code, str(refused))
        for user, (error, _) in sliced(results.items()):
            if error:  # restore the user's credentials
                changed[user] = dict(node.catalogue.scram.get(user, {}))
        kept = {user: own for user, own in changed.items() if own}
        if kept != node.catalogue.scram:
            try:
                await node.catalogue.set_scram(kept)
            except RequestRefused as failed:
                results = dict.fromkeys(results, (failed.code, str(failed)))
    return {
        "results": [
            {"user": user, "error_code": error, "error_message": message}
            for user, (error, message) in sliced(results.items())
        ]
    }


def _alter(credentials: dict[str, dict[str, Credential]], change: Any) -> None:
    if not change.name:
        raise RequestRefused(UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = mechanism_name(change.mechanism)
    own = credentials.setdefault(change.name, {})
    if hasattr(change, "salted_password"):
        own[mechanism] = credential(
            mechanism, change.iterations, bytes(change.salt), bytes(change.salted_password)
        )
    elif own.pop(mechanism, None) is None:
        raise RequestRefused(RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
