"""Subscriptions as text: a topic's name, or a pattern between slashes."""

from __future__ import annotations

import pytest

from millstream.core.subscription import any_includes, included, includes, pattern_in, subscription_to


@pytest.mark.parametrize(
    ("subscription", "topic", "found"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        (r"/orders\..*/", "orders.eu", True),
        (r"/orders\..*/", "orders", False),
        (r"/orders\..*/", "all.orders.eu", False),  # the whole name
        ("/(/", "(", False),  # not a valid pattern, as another program may have reported it
        ("/", "/", True),
    ],
)
def test_what_a_subscription_includes(subscription: str, topic: str, found: bool) -> None:
    assert includes(subscription, topic) is found
    assert any_includes(["other", subscription], topic) is found


def test_a_pattern_is_found_again_in_its_subscription() -> None:
    assert pattern_in(subscription_to(r"a/b")) == "a/b"
    assert pattern_in("orders") is None


def test_the_topics_that_subscriptions_include() -> None:
    there = {"orders.eu": 2, "orders.us": 1, "payments": 3, "other": 1}
    assert included([r"/orders\..*/", "payments"], there) == {"orders.eu": 2, "orders.us": 1, "payments": 3}
