"""Every screen can be used by everybody: axe-core finds no barrier, by day, by night and on a phone, and keys
go where they should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from millstream.views.opening import open_store
from millstream.views.views import Changes, View
from tests.console.conftest import write
from tests.support.browser import DESKTOP, PHONE, barriers, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = (
    "/",
    "/topics?create=true",
    "/topics/payments",
    "/topics/payments?seek=live",
    "/topics/payments/messages/0/0",
    "/topics/payments/partitions",
    "/topics/payments/settings",
    "/topics/payments/produce",
    "/topics/payments/trim?to=3",
    "/topics/payments/delete",
    "/groups",
    "/groups/billing",
    "/groups/billing/reset?to=start",
    "/groups/billing/delete",
    "/pipelines",
    "/views",
    "/views/cards",
    "/views/cards/row?key=a",
    "/sql?sql=SELECT+*+FROM+cards",
    "/nothing",
)


ON_A_PHONE = (  # where something is folded, or scrolls
    "/",
    "/topics/payments/partitions",
    "/groups/billing",
    "/groups/billing/reset?to=start",
    "/pipelines",
    "/sql?sql=SELECT+*+FROM+cards",
)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    views = tmp_path_factory.mktemp("job") / "views.db"
    fill(views)
    with Broker() as broker:
        with Admin(Connection.of(broker.address)) as admin:
            admin.create_topic("payments", partitions=2)
            write(broker.address, "payments", 40)
            admin.commit("billing", {TopicPartition("payments", 0): 3})
        with Console(ConsoleSettings(Connection.of(broker.address), views=(str(views),))) as started:
            yield started


def fill(views: Path) -> None:
    store = open_store(views)
    view = View("cards", (("card", "string"), ("n", "bigint")), ("card",))
    store.prepare(view)
    store.apply("q", 0, [Changes(view, [("a", 1), ("b", 2)], [False, False])])
    store.close()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["wide", "phone"])
def test_no_screen_has_a_barrier(browser: Browser, console: Console, size: tuple[int, int]) -> None:
    with window(browser, size=size) as page:
        for path in PAGES if size == DESKTOP else ON_A_PHONE:
            page.emulate_media(color_scheme="light")
            page.goto(console.url + path)
            page.locator("h1").first.wait_for()
            assert barriers(page) == [], path
            if size == DESKTOP:
                page.emulate_media(color_scheme="dark")
                assert barriers(page, ["color-contrast"]) == [], f"{path} by night"


def test_keys_reach_the_content_first_and_what_has_the_focus_shows(
    browser: Browser, console: Console
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics")
        page.get_by_role("link", name="payments").wait_for()
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to content")
        assert skip.evaluate("link => link === document.activeElement")
        assert skip.bounding_box()["x"] >= 0, "it comes into view"  # type: ignore[index]
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.name")
        assert focused == "search", "what comes next is the page's own"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement === document.body")


def test_a_table_stays_where_it_was_scrolled_though_its_content_is_new(
    browser: Browser, console: Console
) -> None:
    with window(browser, size=PHONE) as page:
        page.goto(f"{console.url}/groups/billing")
        table = page.locator("[sse-swap=partitions] .scroll")
        assert table.get_attribute("tabindex") == "0", "keys scroll it, too"
        # In one go: the page's own updates come every second.
        scrolled = page.evaluate(
            """() => {
              const target = document.querySelector('[sse-swap=partitions]');
              const before = target.querySelector('.scroll');
              before.scrollLeft = 60;
              remember(target);
              target.innerHTML = target.innerHTML;
              arrived(target);
              const after = target.querySelector('.scroll');
              return [before === after, after.scrollLeft];
            }"""
        )
        assert scrolled == [False, 60], "another element, scrolled as the one before"
