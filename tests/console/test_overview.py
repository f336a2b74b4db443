"""The overview, in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from millstream.console.run import Console
from tests.console.conftest import traffic, write
from tests.support.apache_kafka import free_port
from tests.support.browser import PHONE, keep, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize("night", [False, True], ids=["day", "night"])
def test_it_tells_how_things_are(browser: Browser, broker: Broker, console: Console, night: bool) -> None:
    with traffic(broker.address, payments=900, orders=400), window(browser, night=night) as page:
        page.goto(console.url)
        page.get_by_text("All is well.").wait_for()
        page.locator(".figure", has_text="Topics").get_by_text("63", exact=True).wait_for()
        page.locator(".figure", has_text="In").get_by_text("k/s").first.wait_for()
        page.locator(".figure", has_text="Out").get_by_text("1 group").wait_for()
        read = page.locator(".figure", has_text="Out").locator(".value")
        read.filter(has_not_text=re.compile(r"^0/s$")).wait_for()
        page.locator(".figure", has_text="Brokers").get_by_text("1", exact=True).wait_for()
        page.locator(".chart canvas").wait_for()
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(15, 19, 22)") == night
        keep(page, f"overview-{'night' if night else 'day'}")


def test_a_group_about_to_lose_records_comes_first_and_is_linked(browser: Browser, tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Console(broker.address) as console, window(browser) as page:
        with Admin(Connection.of(broker.address)) as admin:
            admin.create_topic("orders", partitions=1, config={"retention.ms": "1800000"})
            write(broker.address, "orders", 100)
            admin.commit("nightly-report", {TopicPartition("orders", 0): 10})
        page.goto(console.url)
        row = page.get_by_role("link", name="nightly-report loses records")
        row.wait_for()
        assert "it is 90 records behind" in row.inner_text()
        keep(page, "overview-attention-day")
        page.emulate_media(color_scheme="dark")
        keep(page, "overview-attention-night")
        assert row.get_attribute("href") == "/groups/nightly-report#orders-0"


def test_what_is_written_shows_without_a_reload(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser) as page:
        page.goto(console.url)
        page.get_by_text("All is well.").wait_for()
        page.evaluate("window.sameAsBefore = true")
        write(broker.address, "orders", 5000)
        page.locator("td", has_text="orders").wait_for()
        assert page.evaluate("window.sameAsBefore")
        page.get_by_role("link", name="orders").click()
        assert page.url.endswith("/topics/orders")


def test_an_empty_broker_says_what_to_do_next(browser: Browser, empty: Console) -> None:
    with window(browser) as page:
        page.goto(empty.url)
        page.get_by_text("There is nothing here yet").wait_for()
        assert "millstream topic create payments" in page.inner_text("pre")
        keep(page, "overview-empty-day")


def test_a_broker_that_comes_and_goes(browser: Browser) -> None:
    port = free_port()
    with Console(f"127.0.0.1:{port}") as console, window(browser) as page:
        answer = page.goto(console.url)
        assert answer is not None
        assert answer.status == 503
        page.get_by_role("heading", name="No broker answers").wait_for()
        keep(page, "away-day")
        with Broker(port=port):
            page.get_by_text("There is nothing here yet").wait_for()
        page.get_by_text("The broker is away.").wait_for()
        with Broker(port=port):
            page.get_by_text("The broker is away.").wait_for(state="detached")


def test_a_phone_folds_the_navigation_and_scrolls_only_down(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser, size=PHONE) as page:
        page.goto(console.url)
        page.get_by_text("All is well.").wait_for()
        page.locator(".chart canvas").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert not page.get_by_role("link", name="Topics", exact=True).is_visible()
        keep(page, "overview-phone-day")
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_placeholder("Search topics").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_keys_go_everywhere_and_the_help_names_them(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(console.url)
        page.locator(".chart canvas").wait_for()
        page.keyboard.press("?")
        page.get_by_role("heading", name="Keyboard").wait_for()
        keep(page, "keys-day")
        page.keyboard.press("Escape")
        page.keyboard.press("d")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/topics")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark", "kept"
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "search"


def test_every_entry_of_the_menu_leads_to_a_page(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser) as page:
        page.goto(console.url)
        entries = page.locator("#navigation li")
        links = page.locator("#navigation li a.nav")
        assert entries.count() == links.count() == 5
        assert "later" not in page.locator("#navigation").inner_text()
