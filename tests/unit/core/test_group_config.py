"""Settings of groups that have a form of their own."""

from __future__ import annotations

import pytest

from millstream.core.config import BrokerConfig, group_defaults, with_changes
from millstream.core.errors import ConfigError
from millstream.core.group_config import GroupConfig, auto_offset_reset


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P2DT0.5S", 172_800_500),
        ("by_duration:pt1m", 60_000),
        ("by_duration:PT0S", 0),
    ],
)
def test_where_a_share_group_begins(text: str, means: str | int) -> None:
    assert auto_offset_reset(text) == means
    changed = with_changes(GroupConfig(), {"share.auto.offset.reset": text})
    assert changed.share_auto_offset_reset == text


@pytest.mark.parametrize(
    "text", ["", "none", "Latest", "by_duration:", "by_duration:P", "by_duration:1h", "by_duration:-PT1H"]
)
def test_where_no_share_group_can_begin(text: str) -> None:
    with pytest.raises(ConfigError, match=r"share\.auto\.offset\.reset: .* as in by_duration:PT1H30M"):
        with_changes(GroupConfig(), {"share.auto.offset.reset": text})


def test_a_group_has_the_brokers_settings_and_defaults_where_the_broker_has_none() -> None:
    broker = BrokerConfig(group_share_record_lock_duration_ms=20_000)
    assert group_defaults(broker) == GroupConfig(share_record_lock_duration_ms=20_000)
