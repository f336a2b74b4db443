"""Lists the tests that pass on Apache Kafka and not here, each with its reason.

``docs/internals/conformance.md`` explains them in more words.
"""

from __future__ import annotations

_OFFSETS_TOPIC = "looks for the topic __consumer_offsets: groups' offsets are in the catalogue here"
_CREATED_AT_ONCE = "counts on a topic that a client asks for being created after the answer, not before it"

REASONS: dict[str, str] = {
    "franz-go TestConsumeRegexShareSkipsInternal": _OFFSETS_TOPIC,
    "franz-go TestConsumeRegex": _OFFSETS_TOPIC,
    "franz-go Test848RegexBrokerResolves": _OFFSETS_TOPIC,
    "kafka-go TestConn": _CREATED_AT_ONCE,
}
