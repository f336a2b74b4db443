from __future__ import annotations

import pytest

from millstream.client.protocol.topic_settings import plain_text


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("The level if it is set to <code>gzip</code>.", "The level if it is set to `gzip`."),
        (
            'Retain markers for <a href="#compaction">log compacted</a> topics.',
            "Retain markers for log compacted topics.",
        ),
        ("The <i>minimum</i> number<br/>of replicas &amp; more", "The minimum number of replicas & more"),
        ("one<p>two</p>", "one two"),
        ("a < b and c > d; as `written` by us", "a < b and c > d; as `written` by us"),
        ("", ""),
    ],
)
def test_what_kafka_writes_as_html_is_read_as_text(told: str, read: str) -> None:
    assert plain_text(told) == read
