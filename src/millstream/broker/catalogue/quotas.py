"""Kafka's client quotas: check changes to them and filters for them, and match entities. No I/O.

A quota belongs to an *entity*: a user, a client id, both together, or an address. A name of None is the
default for all users, client ids or addresses without a quota of their own. Quotas are stored in the
catalogue (``Catalogue.quotas``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import INVALID_REQUEST, UNSUPPORTED_VERSION

Entity = frozenset[tuple[str, str | None]]  # kinds with names
Quotas = Mapping[Entity, Mapping[str, float]]
Filter = tuple[str, int, str | None]  # a kind, how its name is matched, the name

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACTLY, DEFAULT, ANY = range(3)  # how a name is matched

_WHOLE = ("producer_byte_rate", "consumer_byte_rate")
_OF_CLIENTS = (*_WHOLE, "request_percentage", "controller_mutation_rate")
_OF_ADDRESSES = ("connection_creation_rate",)


def check_entity(entity: Sequence[tuple[str, str | None]]) -> None:
    """Raise RequestRefused if the entity can't have quotas."""
    kinds = {kind for kind, _ in entity}
    wrong = None
    if not entity:
        wrong = "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            wrong = f"Unhandled client quota entity type: {kind}"
        elif name == "":
            wrong = f"Empty {kind} not supported"
    if wrong is None and IP in kinds and len(kinds) > 1:
        wrong = "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
    for kind, name in entity if wrong is None else ():
        if kind == IP and name is not None and not _is_address(name):
            wrong = f"{name} is not a valid IP address."
    if wrong is not None:
        raise RequestRefused(INVALID_REQUEST, wrong)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def changed(
    own: Mapping[str, float], entity: Entity, changes: Sequence[tuple[str, float | None]]
) -> dict[str, float]:
    """An entity's quotas with changes applied. A value of None removes a quota. Raises RequestRefused."""
    known = _OF_ADDRESSES if any(kind == IP for kind, _ in entity) else _OF_CLIENTS
    quotas = dict(own)
    for key, value in changes:
        wrong = None
        if key not in known:
            wrong = f"Invalid configuration key {key}"
        elif value is None:
            quotas.pop(key, None)
        elif not 0 < value < float("inf"):
            wrong = f"Quota {key} must be greater than 0"
        elif key in _WHOLE and value != int(value):
            wrong = f"{key} cannot be a fractional value."
        else:
            quotas[key] = value
        if wrong is not None:
            raise RequestRefused(INVALID_REQUEST, wrong)
    return quotas


def check_filters(filters: Sequence[Filter]) -> None:
    """Raise RequestRefused if the filters are invalid."""
    seen: set[str] = set()
    for kind, how, name in filters:
        if kind not in (USER, CLIENT_ID, IP):
            raise RequestRefused(UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        wrong = None
        if kind in seen:
            wrong = f"Entity type {kind} cannot appear more than once in the filter."
        elif how == EXACTLY and name is None:
            wrong = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        elif how in (DEFAULT, ANY) and name is not None:
            word = "DEFAULT" if how == DEFAULT else "SPECIFIED"
            wrong = f"Request specified MATCH_TYPE_{word}, but also specified a match string."
        elif how not in (EXACTLY, DEFAULT, ANY):
            wrong = f"Unknown match type {how}"
        if wrong is not None:
            raise RequestRefused(INVALID_REQUEST, wrong)
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise RequestRefused(
            INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component.",
        )


def matches(entity: Entity, filters: Sequence[Filter], *, strict: bool) -> bool:
    """True if an entity matches the filters. ``strict``: and has no parts that the filters don't name."""
    names = dict(entity)
    if strict and len(names) != len(filters):
        return False
    for kind, how, name in filters:
        if kind not in names:
            return False
        if how == EXACTLY and names[kind] != name:
            return False
        if how == DEFAULT and names[kind] is not None:
            return False
    return True
