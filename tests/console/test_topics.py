"""The list of topics, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import Broker
from millstream.console.run import Console
from tests.console.conftest import write
from tests.support.browser import keep, window
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize("night", [False, True], ids=["day", "night"])
def test_a_page_of_topics(browser: Browser, broker: Broker, console: Console, night: bool) -> None:
    with window(browser, night=night) as page:
        page.goto(f"{console.url}/topics?sort=records&order=desc")
        page.locator("tbody tr").first.get_by_text("payments").wait_for()
        page.locator("tbody tr").first.get_by_text("300").wait_for()
        assert page.locator("tbody tr").count() == 50
        keep(page, f"topics-{'night' if night else 'day'}")
        page.get_by_role("link", name="Next").click()
        page.get_by_text("page 2 of 2").wait_for()
        assert page.locator("tbody tr").count() == 13
        assert "sort=records" in page.url, "the order stays"


def test_a_search_applies_while_one_types_and_is_in_the_address(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics")
        page.keyboard.press("/")
        page.keyboard.type("pay")
        page.wait_for_url("**/topics?search=pay*")
        page.get_by_text("1 topic", exact=True).wait_for()
        before = page.locator("tbody td").nth(2).inner_text()
        write(broker.address, "payments", 50)
        # Live updates are those of the search, not of the page it began on.
        page.locator("tbody td").nth(2).filter(has_not_text=before).wait_for()
        assert page.locator("tbody tr").count() == 1
        page.goto(page.url)
        assert page.locator("tbody tr").count() == 1, "the address can be shared"


def test_what_has_the_focus_is_not_replaced_but_is_caught_up_with_afterwards(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics?search=orders")
        records = page.locator("tbody td").nth(2)
        records.filter(has_not_text="\u2013").wait_for()
        before = records.inner_text()
        link = page.get_by_role("link", name="orders")
        link.focus()
        write(broker.address, "orders", 25)
        wait_for(lambda: page.evaluate("waiting.size"), what="a fragment that waits")
        assert records.inner_text() == before
        assert page.evaluate("document.activeElement.innerText") == "orders"
        link.blur()
        records.filter(has_not_text=before).wait_for()


def test_nothing_found_says_so(browser: Browser, broker: Broker, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics?search=<nothing>")
        page.get_by_text("No topic has “<nothing>” in its name").wait_for()


def test_it_works_without_javascript(browser: Browser, broker: Broker, console: Console) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{console.url}/topics")
    page.get_by_placeholder("Search topics").fill("service-1")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**search=service-1*")
    assert page.locator("tbody tr").count() == 10
    context.close()
