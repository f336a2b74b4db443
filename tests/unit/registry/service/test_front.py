"""The registry takes changes from programs, not from pages of other sites that a browser has open."""

from __future__ import annotations

import pytest

from millstream.core.http_origin import objection, own_names


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"host": "127.0.0.1:8081"}, None),
        ("POST", {"host": "[::1]:8081"}, None),
        ("POST", {"host": "registry.example:8081"}, None),
        ("GET", {"host": "127.0.0.1:8081", "origin": "https://evil.example"}, None),
        ("GET", {"host": "evil.example:8081"}, 421),
        ("GET", {}, 421),
        ("POST", {"host": "127.0.0.1:8081", "origin": "https://evil.example"}, 403),
        ("DELETE", {"host": "127.0.0.1:8081", "origin": "null"}, 403),
        ("PUT", {"host": "127.0.0.1:8081", "sec-fetch-site": "cross-site"}, 403),
        ("DELETE", {"host": "127.0.0.1:8081", "sec-fetch-site": "same-site"}, 403),
        ("POST", {"host": "127.0.0.1:8081", "origin": "http://127.0.0.1:8081"}, None),
    ],
)
def test_who_may_ask_for_what(method: str, headers: dict[str, str], status: int | None) -> None:
    wrong = objection(method, headers, own_names(["registry.example"]))
    assert (wrong and wrong[0]) == status
