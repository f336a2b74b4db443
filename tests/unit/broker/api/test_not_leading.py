"""A broker that does not lead refuses what is a coordinator's, in every version."""

from __future__ import annotations

from typing import Any

import pytest

import millstream.broker.api  # noqa: F401  (registers the handlers)
from millstream.broker.api.handlers import HANDLERS
from millstream.broker.api.not_leading import REFUSED
from millstream.core.kafka_errors import NOT_COORDINATOR
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


def error_codes(answer: Any) -> list[int]:
    """Every error code in an answer, however deep."""
    if isinstance(answer, tuple):
        return [code for each in answer for code in error_codes(each)]
    found = []
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        found += [int(value)] if name.endswith("error_code") else error_codes(value)
    return found


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(key, v) for key in REFUSED for v in range(HANDLERS[key].first, HANDLERS[key].last + 1)],
)
def test_every_answer_says_not_coordinator_and_nothing_else(api_key: int, version: int) -> None:
    body = bytearray()
    request_writer(api_key, version)(body, _FIELDS.get(api_key, {}))
    request, _ = request_reader(api_key, version)(bytes(body), 0)
    answer = REFUSED[api_key](request, version)
    served = HANDLERS[api_key]
    assert not unknown_fields(answer, field_names(api_key, (served.first, served.last)))
    written = bytearray()
    answer_writer(api_key, version)(written, answer)
    parsed, size = answer_reader(api_key, version)(bytes(written), 0)
    assert size == len(written)
    codes = error_codes(parsed)
    assert codes
    assert set(codes) == {NOT_COORDINATOR}
