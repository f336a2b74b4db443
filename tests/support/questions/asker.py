"""Asking one broker, and what is left of its answers when they are made plain."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from typing import Any

from tests.support.waiting import wait_for
from tests.support.wire_client import LIST_OFFSETS, WireClient

# Words for people, and what each broker makes up for itself.
_LEFT_OUT = {"error_message", "record_errors", "throttle_time", "cluster_id", "host", "port", "rack"}
_SETTINGS = {"cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes"}
_TIMES = {"log_append_time", "timestamp", "last_timestamp"}


def _place(fields: dict[str, Any]) -> tuple[str, ...]:
    """The sort key of an entry in a list: its subject."""
    about = ("name", "topic", "key", "group_id", "resource_name", "partition_index", "index", "partition")
    return tuple(str(fields.get(name, "")) for name in about)


class Questions:
    """Asks one broker. Names of topics and groups begin with ``prefix``, which is not in the answers."""

    def __init__(self, client: WireClient, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.answers: dict[str, Any] = {}
        self._made_up: dict[Any, str] = {}

    def name(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def ask(self, question: str, api_key: int, version: int, **fields: Any) -> Any:
        """The answer, as it came; what is left of it when it is made plain is kept."""
        try:
            answer = self.client.call(api_key, version, **fields)
        except (EOFError, TimeoutError) as error:
            self.answers[question] = "closed" if isinstance(error, EOFError) else "no answer"
            host, port = self.client.socket.getpeername()[:2]
            self.client.socket.close()
            self.client = WireClient(f"{host}:{port}", timeout=5)
            return None
        assert question not in self.answers, f"asked twice: {question}"
        self.answers[question] = self.plain(answer)
        return answer

    def plain(self, value: Any, field: str = "") -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            if "replication_factor" in fields:
                # Of a new topic's settings, those that both brokers know.
                fields["configs"] = [each for each in fields["configs"] or () if each.name in _SETTINGS]
            if fields.get("error_code") and "base_offset" in fields:
                del fields["log_start_offset"]  # for some errors Kafka tells it
            return {name: self.plain(v, name) for name, v in fields.items() if name not in _LEFT_OUT}
        if isinstance(value, (tuple, list)):
            plain = [self.plain(item, field) for item in value]
            # Kafka answers in the order of a hash table, and tells a topic's partitions in one place.
            return sorted(plain, key=_place) if plain and isinstance(plain[0], dict) else plain
        if isinstance(value, enum.IntEnum):
            return f"{int(value)} {value.name}"
        if isinstance(value, uuid.UUID):
            return self._numbered("id", value)
        if isinstance(value, bytes):
            return f"{len(value)} bytes" if field == "records" else value.decode("latin-1")
        if isinstance(value, str):
            text = value.replace(self.prefix, "~")
            return self._numbered("member", value) if field in ("member_id", "leader") and value else text
        if field == "producer_id" and isinstance(value, int) and value >= 0:
            return self._numbered("producer", value)
        if field in _TIMES and isinstance(value, datetime.datetime):
            return "a time"
        if isinstance(value, (datetime.timedelta, datetime.datetime)):
            return str(value)
        return value

    def _numbered(self, kind: str, value: Any) -> str:
        known = self._made_up
        if (kind, value) not in known:
            known[kind, value] = f"{kind} {sum(key[0] == kind for key in known) + 1}"
        return known[kind, value]

    def topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create one, for questions about it, and wait until its partitions are led."""
        name = self.name(name)
        self.client.create_topic(name, partitions, **configs)

        def is_led() -> bool:
            wanted = [
                {"partition_index": p, "current_leader_epoch": -1, "timestamp": -1} for p in range(partitions)
            ]
            found = self.client.call(
                LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": name, "partitions": wanted}]
            )
            return all(partition.error_code.value == 0 for partition in found.topics[0].partitions)

        wait_for(is_led, what=f"{name} is led")
        return name
