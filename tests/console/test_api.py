"""The REST interface is what its OpenAPI document says, and refuses what it should."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from millstream import Broker
from millstream.client.connect import Connection
from millstream.console.run import Console
from millstream.console.settings import Settings
from millstream.pipeline.views import Changes, View, open_store
from tests.support.apache_kafka import free_port

SQL = {"/api/sql"}  # of which no schema says what is right


@pytest.fixture(scope="module")
def console(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One that has everything there is to ask for."""
    views = tmp_path_factory.mktemp("job") / "views.db"
    store = open_store(views)
    cards = View("cards", (("card", "string"), ("n", "bigint")), ("card",))
    store.prepare(cards)
    store.apply("q", 0, [Changes(cards, [("a", 1), ("b", 2)], [False, False])])
    store.close()
    with Console(Settings(Connection.of(broker.address), views=(str(views),))) as started:
        yield started


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
def test_answers_are_as_documented(console: Console, mode: GenerationMode) -> None:
    described = schemathesis.openapi.from_url(f"{console.url}/api/openapi.json")
    tried = set()
    for operation in (found.ok() for found in described.get_all_operations()):
        if mode is GenerationMode.NEGATIVE and not operation.query:
            continue  # nothing can be asked wrongly

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=10, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        def as_documented(case: Case) -> None:
            excluded = [positive_data_acceptance] if case.path in SQL else []
            case.call_and_validate(excluded_checks=excluded)

        as_documented()
        tried.add(operation.path)
    assert tried >= {"/api/topics", "/api/views/{name}", "/api/views/{name}/row", "/api/sql"}


@pytest.fixture(scope="module")
def away() -> Iterator[Console]:
    """A console whose broker is not there."""
    with Console(f"127.0.0.1:{free_port()}") as started:
        yield started


@pytest.mark.parametrize("path", ["/api/overview", "/api/rates", "/api/topics", "/api/pipelines"])
def test_without_a_broker_it_is_unavailable_and_says_why(away: Console, path: str) -> None:
    answer = httpx.get(away.url + path)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 503
    assert "no broker answers" in problem["detail"]


def test_what_is_not_there_is_a_problem_for_programs_and_a_page_for_people(console: Console) -> None:
    answer = httpx.get(f"{console.url}/api/nothing")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    answer = httpx.get(f"{console.url}/nothing")
    assert answer.status_code == 404
    assert "To the overview" in answer.text


def test_a_wrong_parameter_is_named(console: Console) -> None:
    answer = httpx.get(f"{console.url}/api/topics?page=first")
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("page: ")


def test_a_page_of_a_thousand_topics_is_made_of_one_sample(console: Console, broker: Broker) -> None:
    listed = httpx.get(f"{console.url}/api/topics?per_page=1000&sort=name").json()
    assert listed["found"] == len(listed["topics"]) == 63
    assert [topic["name"] for topic in listed["topics"][:2]] == ["audit.log", "orders"]


def test_it_answers_only_to_its_own_names(console: Console) -> None:
    for host, status in (
        ("evil.example", 421),
        ("localhost:9", 200),
        ("127.0.0.1", 200),
        ("[::1]:9090", 200),
    ):
        assert httpx.get(f"{console.url}/api/overview", headers={"Host": host}).status_code == status, host


def test_names_that_were_allowed_are_its_own(broker: Broker) -> None:
    allowed = Settings(Connection.of(broker.address), hosts=("ops.example.com",))
    with Console(allowed) as console:
        assert (
            httpx.get(f"{console.url}/static/icon.svg", headers={"Host": "ops.example.com"}).status_code
            == 200
        )


def test_pages_may_load_nothing_from_elsewhere(console: Console) -> None:
    policy = httpx.get(console.url).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
