"""A topic and what hangs under it, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from confluent_kafka import Producer

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from tests.console.conftest import traffic
from tests.support.browser import PHONE, keep, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Topics with records that are worth looking at."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        with Admin(Connection.of(started.address)) as admin:
            admin.create_topic("payments", partitions=3, config={"retention.ms": "172800000"})
            for name in ("mixed", "transactions", "doomed", "typed"):
                admin.create_topic(name, partitions=1)
            write_payments(started.address)
            admin.commit("billing", {TopicPartition("payments", n): 10 for n in range(3)})
            admin.commit("nightly-report", {TopicPartition("doomed", 0): 2})
        write_mixed(started.address)
        write_transactions(started.address)
        yield started


def write_payments(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(600):
        value = {
            "card": f"c{number % 40}",
            "eur": round(number * 7.31 % 400, 2),
            "country": ("DE", "FR", "NL", "AT")[number % 4],
            "user": {"id": number, "tags": ["new"] if number % 9 == 0 else []},
        }
        producer.produce(
            "payments", json.dumps(value), key=value["card"], headers={"trace": f"00-{number:04x}"}
        )
    assert producer.flush(30) == 0


def write_mixed(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for topic, key, value in (
        ("mixed", b"text", "plain text, and a second line\nhere"),
        ("mixed", b"bytes", bytes(range(60))),
        ("mixed", b"long", "x" * 200_000),
        ("mixed", b"gone", None),
        ("mixed", None, "<script>alert('no')</script>"),
        *(("doomed", b"k", f"record {number}") for number in range(12)),
    ):
        producer.produce(topic, value, key=key)
    assert producer.flush(30) == 0


def write_transactions(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "shop"})
    producer.init_transactions(30)
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce("transactions", f"order {number}")
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


def rows(page: Page) -> list[str]:
    return page.locator(".messages summary").all_inner_texts()


def keep_both(page: Page, name: str) -> None:
    """By day and by night."""
    keep(page, f"{name}-day")
    page.emulate_media(color_scheme="dark")
    keep(page, f"{name}-night")
    page.emulate_media(color_scheme="light")


def test_messages_are_there_newest_first_and_unfold(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/payments?limit=20")
        page.locator(".figure", has_text="Records").get_by_text("600", exact=True).wait_for()
        page.locator(".figure", has_text="Kept").get_by_text("2 d").first.wait_for()
        page.locator(".chart canvas").wait_for()
        assert page.locator(".messages > li").count() == 20
        first = page.locator(".messages summary").first
        first.click()
        body = page.locator(".messages .inside").first
        body.get_by_text('"card":').wait_for()
        assert '"eur": ' in body.locator("pre").last.inner_text()
        body.get_by_text("the producer's (CreateTime)").wait_for()
        assert body.locator(".headers").inner_text().startswith("trace")
        keep_both(page, "messages")
        body.get_by_role("link", name="Link to this message").click()
        page.wait_for_url(re.compile(r"/topics/payments/messages/\d/\d+$"))
        page.get_by_role("heading", name=re.compile("Message ")).wait_for()
        keep_both(page, "message")
        page.go_back()
        page.get_by_role("link", name="Older").click()
        page.wait_for_url("**cursor=*")
        assert page.locator(".messages > li").count() == 20


def test_filters_and_places_are_in_the_address(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/payments")
        page.get_by_label("Where").fill('$.user.tags contains "new" and $.country = "DE" and $.eur > 100')
        page.get_by_label("Key contains").fill("c3")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**where=*")
        assert "value=" not in page.url, "empty fields are not in the address"
        page.get_by_text("looked at 600 records").wait_for()
        shown = rows(page)
        assert shown
        assert all('"new"' in row and '"DE"' in row for row in shown)
        keep(page, "messages-filtered-day")
        page.reload()
        assert rows(page) == shown
        page.get_by_label("Where").fill("$.eur >")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("alert").get_by_text("expected a value").wait_for()
        assert page.get_by_label("Where").input_value() == "$.eur >"
        page.goto(f"{console.url}/topics/payments?header=trace=00-0007")
        assert page.locator(".messages > li").count() == 1
        page.goto(f"{console.url}/topics/payments?seek=offset&offset=5&partition=1&limit=2")
        assert page.locator(".messages .place").all_inner_texts() == ["1:5", "1:6"]


def test_a_time_is_typed_in_the_readers_zone_and_shared_in_utc(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/payments")
        page.get_by_role("form", name="Which messages").get_by_text("Time", exact=True).click()
        page.get_by_text("Europe/Berlin").wait_for()
        page.locator("input[name=time]").fill("2026-01-15 13:30")
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**time=2026-01-15T12%3A30%3A00.000Z*")
        assert page.locator("input[name=time]").input_value() == "2026-01-15 13:30:00"
        assert page.locator(".messages > li").count() == 50
        page.goto(f"{console.url}/topics/payments?seek=time&time=-1s")
        page.get_by_text("There is nothing more").wait_for()


def test_following_shows_what_comes_and_holds_it_while_paused(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/mixed?seek=live")
        assert page.locator(".messages > li").count() == 5
        send(broker.address, "mixed", "one more")
        page.locator(".messages > li").first.get_by_text("one more").wait_for()
        page.get_by_role("button", name="Pause").click()
        send(broker.address, "mixed", "while paused")
        page.get_by_text("Paused; 1 new").wait_for()
        keep(page, "messages-live-day")
        assert page.get_by_text("while paused").count() == 0
        page.get_by_role("button", name="Continue").click()
        page.locator(".messages > li").first.get_by_text("while paused").wait_for()
        assert page.locator(".messages > li").count() == 7
        page.locator(".messages summary").first.click()
        page.locator(".messages .inside").first.get_by_text("CreateTime").wait_for()


def send(address: str, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_what_is_no_text_is_long_or_hostile_is_shown_as_it_is(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/mixed?seek=oldest&limit=5")
        assert page.locator(".badge", has_text="tombstone").count() == 1
        page.get_by_text("<script>alert('no')</script>").wait_for()
        page.goto(f"{console.url}/topics/mixed/messages/0/1")
        assert "3c 3d" not in page.inner_text("pre >> nth=0")
        page.get_by_text("00000030  30 31 32 33").wait_for()
        page.goto(f"{console.url}/topics/mixed/messages/0/2")
        page.get_by_text("Cut after 65,536 characters").wait_for()
        page.get_by_role("link", name="Show all").click()
        page.wait_for_url("**all=true")
        assert len(page.locator("pre").last.inner_text()) == 200_000
        whole = httpx.get(f"{console.url}/api/topics/mixed/messages/0/2/value")
        assert (len(whole.content), whole.headers["content-disposition"]) == (
            200_000,
            'attachment; filename="mixed-0-2"',
        )
        page.goto(f"{console.url}/topics/mixed/messages/0/900")
        page.get_by_text("it is not written yet").wait_for()


def test_transactions_show_what_they_came_to(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/transactions")
        assert page.locator(".messages > li").count() == 2
        page.get_by_label("uncommitted too").check()
        page.wait_for_url("**committed=false*")
        assert page.locator(".messages > li").count() == 6
        page.locator(".messages summary", has_text="order 1").get_by_text("aborted").wait_for()
        assert page.get_by_text("a transaction was committed here").count() == 2
        keep(page, "messages-transactions-day")


def test_a_record_is_produced_and_mistakes_are_kept(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/typed/produce")
        page.get_by_label("Key, none if empty").fill("c9")
        page.locator("textarea[name=value]").fill('{"eur": }')
        page.get_by_label("Value as").select_option("json")
        page.locator("textarea[name=headers]").fill("trace: 1\nempty")
        page.get_by_role("button", name="Produce").click()
        page.get_by_role("alert").get_by_text("value: not JSON").wait_for()
        keep(page, "produce-day")
        assert page.get_by_label("Key, none if empty").input_value() == "c9"
        page.locator("textarea[name=value]").fill('{"eur": 1}')
        page.get_by_role("button", name="Produce").click()
        page.wait_for_url("**/topics/typed/messages/0/0?done=produced")
        page.get_by_text("The record was produced").wait_for()
        assert "null" in page.locator(".headers").inner_text()
        page.goto(f"{console.url}/topics/typed/produce")
        page.get_by_label("tombstone").check()
        page.get_by_role("button", name="Produce").click()
        page.get_by_role("alert").get_by_text("key: a tombstone needs one").wait_for()


def test_settings_are_explained_changed_and_reset(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/payments/settings")
        setting = page.locator("details[id='retention.ms']")
        setting.get_by_text("2 d", exact=True).wait_for()
        setting.locator("summary").click()
        setting.get_by_text("Without that it would be 604800000 (7 d)").wait_for()
        keep(page, "settings-day")
        setting.get_by_role("textbox").fill("soon")
        setting.get_by_role("button", name="Save").click()
        setting.get_by_role("alert").get_by_text("is not a whole number").wait_for()
        assert setting.get_by_role("textbox").input_value() == "soon"
        setting.get_by_role("textbox").fill("86400000")
        setting.get_by_role("button", name="Save").click()
        page.get_by_text("retention.ms was changed").wait_for()
        setting.get_by_text("1 d", exact=True).wait_for()
        setting.locator("summary").click()
        setting.get_by_role("button", name="Reset").click()
        page.get_by_text("retention.ms is back to what it inherits").wait_for()
        page.get_by_placeholder("Search settings").fill("tombstone")
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**search=tombstone")
        assert page.locator(".settings details").count() == 1


def test_partitions_and_consumers(browser: Browser, broker: Broker, console: Console) -> None:
    with traffic(broker.address, payments=200), window(browser) as page:
        page.goto(f"{console.url}/topics/payments/partitions")
        assert page.locator(".scroll tbody tr").count() == 3
        before = page.locator(".scroll tbody td").nth(4).inner_text()
        page.locator(".scroll tbody td").nth(4).filter(has_not_text=before).wait_for()
        keep_both(page, "partitions")
        page.get_by_role("link", name="Consumers").click()
        page.locator("tbody tr", has_text="billing").wait_for()
        keep_both(page, "consumers")
        link = page.get_by_role("link", name="billing")
        assert link.get_attribute("href") == "/groups/billing"


def test_a_topic_is_created_grows_is_cut_and_deleted(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics")
        page.get_by_text("Create a topic").click()
        page.get_by_label("Name", exact=True).fill("short-lived")
        page.get_by_label("Partitions", exact=True).fill("2")
        page.locator("textarea[name=settings]").fill("retention.mss=1")
        keep(page, "create-day")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("alert").get_by_text("retention.mss").wait_for()
        page.locator("textarea[name=settings]").fill("retention.ms=3600000")
        page.get_by_role("button", name="Create").click()
        page.get_by_text("short-lived was created.").wait_for()
        page.get_by_label("Partitions in all").fill("4")
        page.get_by_role("button", name="Add").click()
        page.get_by_text("It has 4 partitions now").wait_for()

        page.goto(f"{console.url}/topics/doomed/trim")
        page.get_by_label("Keep from").fill("8")
        page.get_by_role("button", name="Show what").click()
        page.get_by_role("heading", name="This deletes 8 records").wait_for()
        page.get_by_text("nightly-report (10 records unread)").wait_for()
        keep(page, "trim-day")
        page.get_by_role("button", name="Delete 8 records").click()
        page.get_by_text("The oldest records were deleted.").wait_for()
        assert page.locator(".scroll tbody td").nth(3).inner_text() == "8"

        page.get_by_role("link", name="Delete the topic").click()
        page.get_by_text("4 records", exact=True).wait_for()
        page.get_by_text("nightly-report has read it").wait_for()
        keep(page, "delete-day")
        page.get_by_role("textbox").fill("domed")
        page.get_by_role("button", name="Delete the topic").click()
        page.get_by_role("alert").get_by_text("nothing was deleted").wait_for()
        page.get_by_role("textbox").fill("doomed")
        page.get_by_role("button", name="Delete the topic").click()
        page.get_by_text("doomed was deleted.").wait_for()
        assert page.locator("tbody tr", has_text="doomed").count() == 0
        answer = page.goto(f"{console.url}/topics/doomed")
        assert answer is not None
        assert answer.status == 404


def test_read_only_shows_everything_and_changes_nothing(browser: Browser, broker: Broker) -> None:
    with (
        Console(ConsoleSettings(Connection.of(broker.address), read_only=True)) as console,
        window(browser) as page,
    ):
        page.goto(f"{console.url}/topics/mixed/produce")
        page.get_by_text("This console is read-only").wait_for()
        assert page.get_by_role("button", name="Produce").is_disabled()
        page.goto(f"{console.url}/topics/mixed/settings")
        page.locator(".settings summary").first.click()
        assert page.get_by_role("button", name="Save").count() == 0
        answer = httpx.post(f"{console.url}/topics/mixed/produce", data={"value": "x"})
        assert answer.status_code == 403
        assert httpx.delete(f"{console.url}/api/topics/mixed").status_code == 403


def test_a_phone_scrolls_only_down(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser, size=PHONE) as page:
        for part in ("", "/partitions", "/consumers", "/settings", "/produce", "/trim?to=3", "/delete"):
            page.goto(f"{console.url}/topics/payments{part}")
            page.locator(".chart canvas").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], part
        page.goto(f"{console.url}/topics/payments")
        page.locator(".messages summary").first.click()
        page.locator(".messages .inside").first.get_by_text("CreateTime").wait_for()
        keep(page, "messages-phone-day")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_it_works_without_javascript(browser: Browser, broker: Broker, console: Console) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{console.url}/topics/payments")
    page.get_by_label("Value contains").fill('"id": 77')
    page.get_by_role("button", name="Show").click()
    page.locator(".messages summary").first.click()
    page.get_by_role("link", name="Open this message").click()
    page.get_by_text('"id": 77').wait_for()
    context.close()
