"""A broker that does not lead refuses what is a coordinator's, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import millstream.broker.api  # noqa: F401  (registers the handlers)
from millstream.broker.api.handlers import HANDLERS
from millstream.broker.api.not_leading import REFUSED
from millstream.core.kafka_errors import (
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    SHARE_SESSION_NOT_FOUND,
)
from millstream.wire.codec.schema_codec import (
    answer_reader,
    answer_writer,
    field_names,
    request_reader,
    request_writer,
    unknown_fields,
)

_FIELDS: dict[int, dict[str, Any]] = {
    8: {"topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]},
    9: {
        "groups": [{"group_id": "g", "topics": None}],
        "topics": [{"name": "t", "partition_indexes": [3]}],
    },
    15: {"groups": ["g"]},
    24: {"v3_and_below_topics": [{"name": "t", "partitions": [3]}]},
    28: {"topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]},
    42: {"groups_names": ["g"]},
    65: {"transactional_ids": ["x"]},
    69: {"group_ids": ["g"]},
    77: {"group_ids": ["g"]},
    90: {"groups": [{"group_id": "g", "topics": None}]},
}


_OF_SESSIONS = (78, 79)  # they ask for partitions, not for a coordinator


def error_codes(answer: Any) -> list[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, tuple):
        return [code for each in answer for code in error_codes(each)]
    found = []
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        found += [int(value)] if name.endswith("error_code") else error_codes(value)
    return found


def refused(api_key: int, version: int, fields: dict[str, Any]) -> Any:
    """The answer to a request, read again from its bytes."""
    body = bytearray()
    request_writer(api_key, version)(body, fields)
    request, _ = request_reader(api_key, version)(bytes(body), 0)
    answer = REFUSED[api_key](request, version)
    served = HANDLERS[api_key]
    assert not unknown_fields(answer, field_names(api_key, (served.first, served.last)))
    written = bytearray()
    answer_writer(api_key, version)(written, answer)
    parsed, size = answer_reader(api_key, version)(bytes(written), 0)
    assert size == len(written)
    return parsed


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (key, v)
        for key in REFUSED
        if key not in _OF_SESSIONS
        for v in range(HANDLERS[key].first, HANDLERS[key].last + 1)
    ],
)
def test_every_answer_says_not_coordinator_and_nothing_else(api_key: int, version: int) -> None:
    codes = error_codes(refused(api_key, version, _FIELDS.get(api_key, {})))
    assert codes
    assert set(codes) == {NOT_COORDINATOR}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("api_key", _OF_SESSIONS)
def test_a_member_of_a_share_group_looks_for_the_leader_of_its_partitions(api_key: int, version: int) -> None:
    partition = {"partition_index": 3, "acknowledgement_batches": []}
    named = refused(api_key, version, {"topics": [{"topic_id": uuid.uuid4(), "partitions": [partition]}]})
    assert named.error_code.value == 0
    (told,) = named.responses[0].partitions
    assert (told.partition_index, int(told.error_code)) == (3, NOT_LEADER_OR_FOLLOWER)
    # One that names none has a session, which is not here: the client names them all in a new one.
    assert refused(api_key, version, {"topics": []}).error_code.value == SHARE_SESSION_NOT_FOUND
