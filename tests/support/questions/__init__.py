"""Odd requests, asked of any broker, and its answers in a form that two brokers' can be compared in.

Each function of ``FAMILIES`` asks a broker many things that real clients hardly ever do: names that no topic
can have, partitions and epochs that are not there, the same thing twice in one request, empty lists. What the
broker says is kept under a name for the question. Two brokers' answers never agree in everything: ids, ports
and times are made up by each, and messages are for people; ``plain`` takes these out, and nothing else.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tests.support.questions.asker import Questions
from tests.support.questions.groups import committing_offsets, joining_groups
from tests.support.questions.records import (
    deleting_records,
    fetching,
    looking_up_offsets,
    producing,
    producing_poison,
)
from tests.support.questions.settings import settings
from tests.support.questions.share_groups import (
    members_of_share_groups,
    offsets_of_share_groups,
    settings_of_share_groups,
)
from tests.support.questions.topics import (
    creating_topics,
    deleting_topics,
    growing_topics,
    metadata_of_topics,
)
from tests.support.questions.transactions import coordinators_and_producers, transactions
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient

OFFSET_FETCH, FIND_COORDINATOR, INIT_PRODUCER = 9, 10, 22

FAMILIES: list[Callable[[Questions], None]] = [
    creating_topics,
    deleting_topics,
    growing_topics,
    metadata_of_topics,
    producing,
    producing_poison,
    fetching,
    looking_up_offsets,
    deleting_records,
    settings,
    joining_groups,
    committing_offsets,
    members_of_share_groups,
    offsets_of_share_groups,
    settings_of_share_groups,
    coordinators_and_producers,
    transactions,
]


def _is_ready(client: WireClient) -> bool:
    """Whether every coordinator has loaded what it keeps."""
    for name in map(str, range(16)):
        init = client.call(INIT_PRODUCER, 4, transactional_id=f"ready-{name}", transaction_timeout=60_000)
        fetched = client.call(OFFSET_FETCH, 7, group_id=f"ready-{name}", topics=[], require_stable=False)
        if init.error_code.value or fetched.error_code.value:
            return False
    return client.call(INIT_PRODUCER, 4, transactional_id=None, transaction_timeout=0).error_code.value == 0


def ask_all(address: str, family: Callable[[Questions], None]) -> dict[str, Any]:
    """Every question of a family, and what this broker answers."""
    with WireClient(address, timeout=8) as client:
        for kind in (0, 1):  # Kafka makes coordinators when they are first asked for
            keys = {"key_type": kind, "coordinator_keys": ["any"]}
            wait_for(
                lambda keys=keys: (
                    client.call(FIND_COORDINATOR, 4, **keys).coordinators[0].error_code.value == 0
                ),
                what=f"a coordinator of type {kind}",
                timeout=90,
            )
        wait_for(lambda: _is_ready(client), what="the coordinators have loaded", timeout=90)
        questions = Questions(client, f"q{uuid.uuid4().hex[:10]}-")
        family(questions)
        if questions.client is not client:
            questions.client.socket.close()
        return questions.answers
