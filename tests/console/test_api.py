"""The REST interface is what its OpenAPI document says, and refuses what it should."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import positive_data_acceptance

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from millstream.views.opening import open_store
from millstream.views.views import Changes, View
from tests.console.conftest import write
from tests.support.apache_kafka import free_port
from tests.support.waiting import wait_for

# What these take is more than a schema can say: expressions, names of settings, JSON within a text.
BEYOND_SCHEMAS = ("/messages", "/settings", "/trim", "/partitions", "/sql", "/views/{name}", "/row")


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console for a broker of its own, as programs change it."""
    with Broker(tmp_path_factory.mktemp("changing")) as broker:
        with Admin(Connection.of(broker.address)) as admin:
            admin.create_topic("payments", partitions=2)
        write(broker.address, "payments", 30)
        views = tmp_path_factory.mktemp("job") / "views.db"
        store = open_store(views)
        view = View("payments", (("card", "string"), ("n", "bigint")), ("card",))
        store.prepare(view)
        store.apply("q", 0, [Changes(view, [("a", 1), ("b", 2)], [False, False])])
        store.close()
        with Console(ConsoleSettings(Connection.of(broker.address), views=(str(views),))) as started:
            yield started


def bounded(case: Case) -> None:
    """What would take long, in moderation; a topic or view that is there, unless it would go."""
    if isinstance(case.body, dict):
        for name in ("total", "partitions"):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], 3)
    if case.path_parameters and "name" in case.path_parameters and case.method != "DELETE":
        case.path_parameters["name"] = "payments"


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
def test_answers_are_as_documented(changing: Console, mode: GenerationMode) -> None:
    described = schemathesis.openapi.from_url(f"{changing.url}/api/openapi.json")
    tried = set()
    for operation in (found.ok() for found in described.get_all_operations()):
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # nothing can be asked wrongly
        beyond = operation.method != "get" or operation.path.endswith(BEYOND_SCHEMAS)
        left_out = [positive_data_acceptance] if beyond else []

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        def as_documented(case: Case) -> None:
            if mode is GenerationMode.POSITIVE:
                bounded(case)
            case.call_and_validate(excluded_checks=left_out)  # noqa: B023 - it is called here and now

        try:
            as_documented()
        except (Exception, FailureGroup) as error:  # long, and perhaps only its end is shown
            causes = error.exceptions if isinstance(error, FailureGroup) else [error]
            said = "; ".join(" ".join(f"{type(cause).__name__}: {cause}".split())[:200] for cause in causes)
            raise AssertionError(f"{mode.value} {operation.label}: {said}") from error
        tried.add(operation.path)
    assert {"/api/topics", "/api/topics/{name}/messages", "/api/views/{name}/row", "/api/sql"} <= tried


def test_a_topic_from_beginning_to_end(changing: Console) -> None:
    api = f"{changing.url}/api/topics"
    created = httpx.post(api, json={"name": "made", "partitions": 1, "settings": {"retention.ms": "5000"}})
    assert (created.status_code, created.json()["partitions"]) == (201, 1)
    assert httpx.post(api, json={"name": "made"}).status_code == 409
    for number in range(3):
        record = {"key": "k", "value": f'{{"n": {number}}}', "format": "json"}
        sent = httpx.post(f"{api}/made/messages", json=record)
        assert (sent.status_code, sent.json()) == (201, {"topic": "made", "partition": 0, "offset": number})
    found = httpx.get(f"{api}/made/messages", params={"where": "$.n >= 1", "limit": 1}).json()
    assert [message["offset"] for message in found["messages"]] == [2]
    rest = httpx.get(f"{api}/made/messages", params={"where": "$.n >= 1", "cursor": found["next"]}).json()
    assert [message["offset"] for message in rest["messages"]] == [1]
    assert rest["next"] == ""
    wrong = httpx.get(f"{api}/made/messages", params={"where": "$.n >="})
    assert (wrong.status_code, wrong.json()["detail"]) == (
        400,
        'expected a value: 7, "text", true, false or null, at character 7',
    )
    changes = {"set": {"segment.ms": "1000"}, "reset": ["retention.ms"]}
    altered = httpx.patch(f"{api}/made/settings", json=changes)
    own = {setting["name"]: setting["value"] for setting in altered.json()["settings"] if setting["own"]}
    assert own == {"segment.ms": "1000"}
    refused = httpx.patch(f"{api}/made/settings", json={"set": {"segment.ms": "soon"}})
    assert (refused.status_code, refused.json()["kafka"]) == (400, "INVALID_CONFIG")
    trim = httpx.post(f"{api}/made/trim?dry_run=true", json={"to": "-1"})
    assert trim.json()["records"] == 2
    assert httpx.get(f"{api}/made/messages/0/0").status_code == 200, "it was only asked"
    httpx.post(f"{api}/made/trim", json={"to": "-1"})
    assert httpx.get(f"{api}/made/messages/0/0").status_code == 404
    assert httpx.post(f"{api}/made/partitions", json={"total": 2}).json()["partitions"] == 2
    assert httpx.post(f"{api}/made/partitions", json={"total": 2}).status_code == 400
    assert httpx.delete(f"{api}/made").json()["topic"] == "made"
    gone = httpx.get(f"{api}/made")
    assert (gone.status_code, gone.json()["kafka"]) == (404, "UNKNOWN_TOPIC_OR_PART")


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


def test_a_parameter_that_is_too_long_is_refused_in_words(console: Console) -> None:
    cursor = quote("\U000cd284" * 30_001)  # longer than httpx makes a URL
    connection = HTTPConnection(console.url.removeprefix("http://"), timeout=30)
    connection.request("GET", f"/api/topics/orders/messages?cursor={cursor}")
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    connection.close()
    assert answer.status == 400
    assert problem["detail"].startswith("cursor: ")


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
    allowed = ConsoleSettings(Connection.of(broker.address), hosts=("ops.example.com",))
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


def test_a_body_that_is_nested_too_deeply_is_refused(console: Console) -> None:
    body = b"[" * 1_000_000
    with httpx.Client(base_url=console.url, timeout=60) as http:
        answer = http.post("/api/sql", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, answer.text
        assert http.get("/sql", params={"sql": "SELECT 1"}).status_code == 400  # there is no database
        assert http.get("/api/sql", params={"sql": "SELECT 1"}).status_code == 404


def test_pages_that_are_kept_up_to_date_are_bounded_and_hold_no_other_up(console: Console) -> None:
    with httpx.Client(base_url=console.url, timeout=60, limits=httpx.Limits(max_connections=None)) as http:
        with contextlib.ExitStack() as opened:
            statuses = [
                opened.enter_context(http.stream("GET", "/live/topics")).status_code for _ in range(220)
            ]
            assert statuses.count(200) >= 190  # pages that other tests left are being noticed
            assert set(statuses) == {200, 503}
            assert http.get("/topics").status_code == 200

        def free() -> bool:
            with http.stream("GET", "/live/topics") as again:
                return again.status_code == 200

        wait_for(free, what="room for another one")
