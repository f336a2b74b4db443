"""Views, in a browser and for programs: the list, rows that change while one looks, one row, and SQL."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from millstream.views.opening import open_store
from millstream.views.views import Changes, View, ViewStore
from tests.support.browser import PHONE, keep, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

BLOCKED = View(
    "blocked_cards",
    (
        ("card", "string"),
        ("rule", "string"),
        ("spent", "double"),
        ("payments", "bigint"),
        ("since", "timestamp"),
        ("last", "struct<shop:string,country:string>"),
        ("note", "string"),
    ),
    ("card",),
    indexes=(("rule",), ("rule", "spent")),
)
NOON = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)


def card(number: int, **more: Any) -> tuple[Any, ...]:
    plain = {
        "card": f"4716 2530 9871 {number:04}",
        "rule": ("burst", "testing", "travel")[number % 3],
        "spent": 812.5 + 13.25 * number,
        "payments": 5 + number % 17,
        "since": NOON + datetime.timedelta(seconds=37 * number),
        "last": {"shop": f"shop-{number % 40}", "country": ("DE", "FR", "IT")[number % 3]},
        "note": None if number % 4 else "called, and confirmed",
    }
    return tuple((plain | more).values())


def rows(page: Page, first: str, last: str, found: str) -> Locator:
    return page.get_by_text(re.compile(rf"rows {first}.{last} of {found}"))


def written(store: ViewStore, batch: int, *rows: tuple[Any, ...], delete: bool = False) -> None:
    assert store.apply("job-1", batch, [Changes(BLOCKED, rows, [delete] * len(rows))]) == 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewStore]:
    """Views as a job keeps them."""
    store = open_store(tmp_path_factory.mktemp("job") / "views.db")
    store.prepare(BLOCKED)
    written(store, 0, *(card(n) for n in range(240)))
    by_rule = View("spent_by_rule", (("rule", "string"), ("spent", "double")), ("rule",))
    store.prepare(by_rule)
    store.apply("job-2", 0, [Changes(by_rule, [("burst", 1.5), ("travel", 2.5)], [False, False])])
    yield store
    store.close()


@pytest.fixture(scope="module")
def console(broker: Broker, store: ViewStore) -> Iterator[Console]:
    with Console(
        ConsoleSettings(Connection.of(broker.address), views=(store.where,), read_only=True)
    ) as started:
        yield started


# What a stream sends first is what it compares later rows with, so changes flash only after that.
COUNT_UPDATES = """window.updates = 0;
document.addEventListener("htmx:sseMessage", (event) => {
    if (event.target.matches("[sse-swap=table]")) window.updates += 1;
});"""

# What flashes does so until the next look at the view; a busy machine might only see what comes after.
WATCH_FLASHES = """() => {
    window.flashed = [];
    new MutationObserver(() => {
        const cells = document.querySelectorAll("td.flash, tr.flash td");
        window.flashed.push(...Array.from(cells, cell => cell.innerText));
    }).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""


def wait_for_flash(page: Page, text: str) -> None:
    page.wait_for_function("text => window.flashed.includes(text)", arg=text)


@pytest.mark.parametrize("night", [False, True], ids=["day", "night"])
def test_a_table_that_updates_by_itself(
    browser: Browser, console: Console, store: ViewStore, night: bool
) -> None:
    batch = 10 + 10 * night
    with window(browser, night=night) as page:
        page.add_init_script(COUNT_UPDATES)
        page.goto(console.url)
        page.keyboard.press("g")
        page.keyboard.press("v")
        row = page.locator("tr", has_text="blocked_cards")
        assert row.locator("td").nth(3).inner_text() == "240"
        keep(page, f"views-{'night' if night else 'day'}")
        row.get_by_role("link", name="blocked_cards").click()
        rows(page, "1", "50", "240").wait_for()
        page.evaluate("window.sameAsBefore = true")
        page.evaluate(WATCH_FLASHES)
        page.wait_for_function("() => window.updates > 0")
        first = page.locator("tbody tr").first
        assert first.locator("td").nth(4).inner_text() == "2026-01-31 13:00:00", "the reader's zone"
        written(store, batch, card(0, spent=99999.25 + night), card(3, note="new"))
        first.get_by_text(f"{99999.25 + night:,}").wait_for()
        wait_for_flash(page, f"{99999.25 + night:,}")
        assert "burst" not in page.evaluate("window.flashed"), "only what changed"
        keep(page, f"view-{'night' if night else 'day'}")
        written(store, batch + 1, card(-1), delete=False)
        wait_for_flash(page, "4716 2530 9871 -001")
        written(store, batch + 2, card(-1), delete=True)
        page.get_by_text("4716 2530 9871 -001").wait_for(state="detached")
        rows(page, "1", "50", "240").wait_for()
        assert page.evaluate("window.sameAsBefore")
        written(store, batch + 3, card(0), card(3))


def test_search_order_and_page_are_in_the_address(browser: Browser, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/views/blocked_cards?search=burst")
        rows(page, "1", "50", "80").wait_for()
        page.get_by_role("link", name="spent").click()
        assert "sort=spent" in page.url
        page.get_by_role("link", name="Next").click()
        rows(page, "51", "80", "80").wait_for()
        assert {"search=burst", "sort=spent", "order=desc", "page=2"} <= set(
            page.url.partition("?")[2].split("&")
        )
        page.get_by_label("SQL condition").fill("payments > 20 AND country = 'DE'")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("heading", name="The condition is not right").wait_for()
        assert "no such column: country" in page.inner_text(".problem")
        assert page.inner_text("pre.pointed").splitlines()[1].index("^") == len("payments > 20 AND ")
        page.get_by_label("SQL condition").fill("payments > 20")
        page.get_by_role("button", name="Filter").click()
        rows(page, "1", "5", "5").wait_for()
        page.get_by_role("link", name="Clear").click()
        rows(page, "1", "50", "240").wait_for()


def test_one_row_and_what_happened_to_it(browser: Browser, console: Console, store: ViewStore) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/views/blocked_cards?search=0100")
        page.get_by_role("link", name="4716 2530 9871 0100").click()
        page.get_by_role("heading", name="4716 2530 9871 0100").wait_for()
        fields = page.locator("table.one-row")
        assert json.loads(fields.locator("pre.json").inner_text()) == {"shop": "shop-20", "country": "FR"}
        written(store, 40, card(100, note="blocked for good"))
        fields.get_by_text("blocked for good").wait_for()
        written(store, 41, card(100, note=None))
        page.locator("tr", has_text="update").nth(1).wait_for()
        assert fields.locator("tr", has_text="note").locator(".null").inner_text() == "NULL"
        newest = page.locator("tr", has_text="update").first
        assert "note NULL" in newest.inner_text()
        assert "spent" not in newest.inner_text(), "only what changed"
        keep(page, "view-row-day")
        written(store, 42, card(100), delete=True)
        page.get_by_text("This row was deleted").wait_for()
        page.locator("tr", has_text="delete").wait_for()
        written(store, 43, card(100))


def test_sql_is_answered_and_mistakes_are_pointed_at(browser: Browser, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/views/blocked_cards")
        page.get_by_role("link", name="Query with SQL").click()
        page.get_by_text("100 rows").wait_for()
        box = page.get_by_label("SQL", exact=True)
        box.fill(
            "SELECT rule, count(*) AS cards, sum(spent) AS spent\n"
            "FROM blocked_cards\nGROUP BY rule ORDER BY rule"
        )
        box.press("Control+Enter")
        page.get_by_text("3 rows").wait_for()
        assert page.locator("table.rows tbody tr").first.inner_text().split() == ["burst", "80", "190,610"]
        assert "GROUP+BY" in page.url, "it can be shared"
        keep(page, "sql-day")
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        assert Path(download.value.path()).read_text().splitlines()[:2] == [
            "rule,cards,spent",
            "burst,80,190610.0",
        ]
        page.emulate_media(color_scheme="dark")
        box.fill("SELECT rule\nFROM blocked_card")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("heading", name="That can't be answered").wait_for()
        assert "no such table: blocked_card" in page.inner_text(".problem")
        assert page.inner_text("pre.pointed") == "FROM blocked_card\n     ^"
        keep(page, "sql-mistake-night")
        box.fill("DELETE FROM blocked_cards")
        page.get_by_role("button", name="Run").click()
        page.get_by_text("only one statement that reads is allowed").wait_for()
        long = "SELECT " + ", ".join(f"{n} AS column_number_{n}" for n in range(100))
        box.fill(long)
        page.get_by_role("button", name="Run").click()
        page.get_by_text("too long for a link").wait_for()
        assert page.url.endswith("/sql")


def test_on_a_phone_nothing_but_tables_scrolls_sideways(browser: Browser, console: Console) -> None:
    with window(browser, size=PHONE, night=True) as page:
        for path in (
            "/views",
            "/views/blocked_cards",
            "/views/blocked_cards/row?key=4716+2530+9871+0005",
            "/sql?sql=VALUES(1)",
        ):
            page.goto(console.url + path)
            page.locator("table").first.wait_for()
            keep(page, f"phone-{path.strip('/').split('?')[0].replace('/', '-')}-night")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path


def test_without_views_it_says_how_to_have_some(browser: Browser, empty: Console) -> None:
    with window(browser) as page:
        page.goto(f"{empty.url}/views")
        page.get_by_role("heading", name="No views are known yet").wait_for()
        assert "--views postgresql://" in page.inner_text("pre")
        keep(page, "views-empty-day")


# For programs ----------------------------------------------------------------------------------------------


def test_postgresql_beside_a_file(broker: Broker, store: ViewStore, database: str) -> None:
    kept = open_store(database)
    kept.prepare(BLOCKED)
    written(kept, 0, card(1), card(2))
    kept.close()
    views = (
        store.where,
        database.replace("millstream@", "millstream:secret@"),
        "postgresql://nobody@127.0.0.1:1/x",
    )
    with (
        Console(ConsoleSettings(Connection.of(broker.address), views=views)) as console,
        httpx.Client(base_url=console.url) as http,
    ):
        listed = http.get("/api/views").json()
        assert [(view["name"], view["database"], view["rows"]) for view in listed["views"]] == [
            ("blocked_cards", store.where, 240),
            ("spent_by_rule", store.where, 2),
            ("blocked_cards", database, 2),
        ]
        assert "secret" not in json.dumps(listed)
        assert "can't reach" in listed["databases"][2]["problem"]
        there = {"database": database}
        found = http.get(
            "/api/views/blocked_cards", params={**there, "where": "spent > 830", "sort": "since"}
        ).json()
        assert (found["found"], found["rows"][0][0]) == (1, "4716 2530 9871 0002")
        assert found["view"]["indexes"] == [["rule"], ["rule", "spent"]]
        row = http.get("/api/views/blocked_cards/row", params={**there, "key": found["rows"][0][0]}).json()
        assert json.loads(row["row"]["last"]) == {"shop": "shop-2", "country": "IT"}
        assert [change["kind"] for change in row["changes"]] == ["insert"]
        asked = http.post(
            "/api/sql", json={**there, "sql": "SELECT sum(payments)::float8 FROM blocked_cards"}
        )
        assert asked.json()["rows"] == [[13.0]]
        wrong = http.get("/api/sql", params={**there, "sql": "SELECT spend FROM blocked_cards"})
        assert wrong.status_code == 400
        assert wrong.json()["detail"].startswith('line 1, column 8: column "spend" does not exist')
        assert http.get("/api/sql?sql=SELECT 1").status_code == 404, "which of them is not said"


def test_the_page_of_a_view_has_its_indexes(console: Console) -> None:
    shown = httpx.get(f"{console.url}/views/blocked_cards").text
    assert "Indexes" in shown
    assert "rule, spent" in shown
    assert "Indexes" not in httpx.get(f"{console.url}/views/spent_by_rule").text


def test_what_is_wrong_is_said(console: Console) -> None:
    for path, status, said in (
        ("/api/views/nothing", 404, "there is no view 'nothing'"),
        ("/api/views/blocked_cards?sort=x", 400, "no column 'x' to sort by"),
        ("/api/views/blocked_cards?where=x+%3D+1", 400, "line 1, column 1: no such column: x"),
        ("/api/views/blocked_cards/row?key=nobody", 404, "there is no row nobody"),
        ("/api/views/blocked_cards/row?key=a&key=b", 400, "has the key card"),
        ("/api/sql?sql=DELETE+FROM+blocked_cards", 400, "only one statement that reads"),
        ("/api/sql?sql=SELECT+1&database=other.db", 404, "there is no database 'other.db'"),
    ):
        answer = httpx.get(console.url + path)
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
