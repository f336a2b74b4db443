r"""What a reader subscribes to, as text: a topic's name, or a pattern between slashes: ``/orders\..*/``.

No topic has a slash in its name, so the two can't be confused. A pattern is a regular expression of RE2
(``user_regex.py``), and must match a topic's whole name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millstream.core.user_regex import BadPattern, compile_pattern


def subscription_to(pattern: str) -> str:
    return f"/{pattern}/"


def pattern_in(subscription: str) -> str | None:
    """The pattern of a subscription; None if it is a topic's name."""
    is_pattern = len(subscription) > 1 and subscription[0] == subscription[-1] == "/"
    return subscription[1:-1] if is_pattern else None


def includes(subscription: str, topic: str) -> bool:
    """True if a subscription includes a topic. A pattern that is not valid includes none."""
    pattern = pattern_in(subscription)
    if pattern is None:
        return subscription == topic
    try:
        return compile_pattern(pattern)(topic)
    except BadPattern:
        return False


def any_includes(subscriptions: Iterable[str], topic: str) -> bool:
    return any(includes(one, topic) for one in subscriptions)


def included(subscriptions: Collection[str], topics: Mapping[str, int]) -> dict[str, int]:
    """The topics that the subscriptions include, of those that there are."""
    return {topic: count for topic, count in topics.items() if any_includes(subscriptions, topic)}
