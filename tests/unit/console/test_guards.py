"""Who may ask, and what may be changed."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Litestar, post
from litestar.testing import TestClient

from millstream.console import guards
from millstream.console.problems import problem_of
from millstream.core.errors import BrokerUnavailable, ConfigError, RequestFailed
from millstream.core.http_origin import may_be_called


@post("/change", sync_to_thread=False)
def change() -> str:
    return "changed"


@post("/query", opt={"reads": True}, sync_to_thread=False)
def query() -> str:
    return "read"


def client(*more: Any) -> TestClient[Litestar]:
    app = Litestar([change, query], guards=[guards.only_own_pages_write, *more], openapi_config=None)
    return TestClient(app, base_url="http://console.local:9090")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),  # a program
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),  # another port of the same machine
        ({"Origin": "http://console.local:9090"}, 201),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_only_own_pages_and_programs_change_things(headers: dict[str, str], status: int) -> None:
    with client() as asking:
        assert asking.post("/change", headers=headers).status_code == status


def test_read_only_refuses_changes_but_not_questions_that_are_posted() -> None:
    with client(guards.nothing_writes) as asking:
        assert asking.post("/change").status_code == 403
        assert asking.post("/query").status_code == 201


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:9090", True),
        ("[::1]:9090", True),
        ("192.168.1.7", True),
        ("localhost", True),
        ("console.localhost:80", True),
        ("box.example:9090", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_hosts(host: str, ours: bool) -> None:
    assert may_be_called(host, {"box.example"}) == ours


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BrokerUnavailable("away"), 503),
        (RequestFailed(3, "UNKNOWN_TOPIC_OR_PART", "no topic"), 404),
        (RequestFailed(36, "TOPIC_ALREADY_EXISTS", "there"), 409),
        (RequestFailed(56, "KAFKA_STORAGE_ERROR", "disk"), 502),
        (ConfigError("wrong"), 400),
        (ZeroDivisionError("secret"), 500),
    ],
)
def test_errors_have_the_status_of_whose_fault_they_are(error: Exception, status: int) -> None:
    problem = problem_of(error)
    assert problem.status == status
    assert "secret" not in problem.detail
