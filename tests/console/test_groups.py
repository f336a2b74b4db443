"""Consumer groups, in a browser and for programs, with real consumers that are behind."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from confluent_kafka import Consumer

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from tests.console.conftest import write
from tests.support.browser import PHONE, keep, window
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SLOW = "fulfilment"
IDLE = "nightly/report 50%"  # groups have any name


@contextmanager
def slow_member(address: str, group: str, topic: str, records: int) -> Iterator[None]:
    """A consumer that reads so many records, commits them, and stays in its group without reading on."""
    ended, ready = threading.Event(), threading.Event()

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "client.id": "warehouse-1",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "queued.min.messages": 1,
            }
        )
        consumer.subscribe([topic])
        left = records
        while left and not ended.is_set():
            left -= len(consumer.consume(left, 0.2))
        consumer.commit(asynchronous=False)
        consumer.pause(consumer.assignment())
        ready.set()
        while not ended.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert ready.wait(90)
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(Connection.of(broker.address)) as made:
        made.create_topic("shipments", partitions=3, config={"retention.ms": "7200000"})
        write(broker.address, "shipments", 600)
        made.commit(SLOW, {TopicPartition("shipments", n): 0 for n in range(3)})
        made.commit(IDLE, {TopicPartition("payments", 0): 40, TopicPartition("orders", 1): 0})
        for n in range(60):
            made.commit(f"service-{n:02}", {TopicPartition(f"service-{n:02}.events", 0): 0})
        yield made


@pytest.fixture(scope="module")
def member(broker: Broker, admin: Admin) -> Iterator[None]:
    with slow_member(broker.address, SLOW, "shipments", 250):
        yield


def loaded(page: Page) -> None:
    page.locator(".chart canvas").wait_for()
    drawn = "[...charts.values()].every((chart) => chart.data[0].length > 0)"
    wait_for(lambda: page.evaluate(drawn), what="a chart with points")


def follows(page: Page) -> bool:
    """Whether the page is kept up to date, wherever its stream is."""
    return bool(page.evaluate("opened")) and page.locator("#lost").is_hidden()


@pytest.mark.parametrize("night", [False, True], ids=["day", "night"])
def test_the_list_tells_who_is_behind(browser: Browser, console: Console, member: None, night: bool) -> None:
    with window(browser, night=night) as page:
        page.goto(f"{console.url}/groups?sort=lag&order=desc")
        row = page.locator("tbody tr", has_text=SLOW)
        row.get_by_text("350", exact=True).wait_for()
        row.get_by_text("Stable").wait_for()
        assert page.locator("tbody tr").count() == 50
        keep(page, f"groups-{'night' if night else 'day'}")
        page.get_by_role("link", name="Next").click()
        page.get_by_text("page 2 of 2").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("fulf")
        page.wait_for_url("**search=fulf*")
        page.get_by_text("1 group", exact=True).wait_for()
        page.get_by_role("link", name=SLOW).click()
        page.get_by_role("heading", name=SLOW).wait_for()


@pytest.mark.parametrize(
    ("night", "size"),
    [(False, (1280, 900)), (True, (1280, 900)), (False, PHONE)],
    ids=["day", "night", "phone"],
)
def test_one_group_tells_what_each_partition_and_member_does(
    browser: Browser, broker: Broker, console: Console, member: None, night: bool, size: tuple[int, int]
) -> None:
    with window(browser, night=night, size=size) as page:
        page.goto(f"{console.url}/groups/{SLOW}")
        loaded(page)
        legend = page.locator(".u-legend")
        for n in range(3):
            legend.get_by_text(f"shipments[{n}]").wait_for()
        members = page.locator("section", has=page.get_by_role("heading", name="Members"))
        members.get_by_text("warehouse-1").first.wait_for()
        assert "0-2" in members.inner_text()
        assert page.locator("tr[id^=shipments-]").count() == 3
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        keep(page, f"group-{'phone' if size == PHONE else 'night' if night else 'day'}")
        if not night and size != PHONE:
            lag = page.locator(".figure", has_text="Lag").locator(".value")
            before = lag.inner_text()
            write(broker.address, "shipments", 30)
            lag.filter(has_not_text=re.compile(f"^{before}$")).wait_for()


def test_a_group_that_loses_records_is_linked_to_the_partition(
    browser: Browser, broker: Broker, console: Console, admin: Admin
) -> None:
    admin.create_topic("clicks", partitions=2, config={"retention.ms": "1800000"})
    write(broker.address, "clicks", 100)
    ends = admin.ends([TopicPartition("clicks", 0), TopicPartition("clicks", 1)])
    admin.commit("late", dict.fromkeys(ends, 0))
    admin.trim({TopicPartition("clicks", 1): 7})
    with window(browser) as page:
        page.goto(console.url)
        page.get_by_role("link", name="late has lost records").click()
        page.wait_for_url("**/groups/late#clicks-1")
        page.locator("#clicks-1 .bad").first.wait_for()
        page.get_by_text("Deleted before it had read them").wait_for()
        loaded(page)
        keep(page, "group-losing-day")
        page.emulate_media(color_scheme="dark")
        keep(page, "group-losing-night")
        page.goto(f"{console.url}/groups?only=losing")
        page.get_by_text("7 records lost").wait_for()


def test_a_reset_is_previewed_refused_while_there_are_members_and_then_done(
    browser: Browser, broker: Broker, console: Console, admin: Admin, member: None
) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/groups/{SLOW}")
        page.get_by_role("link", name="Reset offsets").click()
        page.locator("select[name=to]").select_option("start")
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("250 records will be read again.").wait_for()
        page.get_by_text("1 active member (warehouse-1 at 127.0.0.1); stop them first").wait_for()
        assert page.get_by_role("button", name="Move 3 partitions").is_disabled()
        keep(page, "group-reset-refused-day")

        page.goto(f"{console.url}/groups")
        page.get_by_role("link", name=IDLE).click()
        page.get_by_role("heading", name=IDLE).wait_for()
        wait_for(lambda: follows(page), what="the stream of a group with a slash in its name")
        page.get_by_role("link", name="reset payments").click()
        page.locator("select[name=to]").select_option("shift")
        page.locator("input[name=value][type=text]").fill("lots")
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("'lots' is not a number of records").wait_for()
        page.locator("input[name=value][type=text]").fill("25")
        page.locator("input[name=partitions][type=text]").fill("0")
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("25 records will be skipped").wait_for()
        assert page.locator("tbody time").count() == 2, "when the first and the last of them were written"
        keep(page, "group-reset-day")
        page.emulate_media(color_scheme="dark")
        keep(page, "group-reset-night")
        page.goto(page.url)
        page.get_by_role("button", name="Move 1 partition").click()
        page.get_by_text("The group was moved").wait_for()
        page.locator("#payments-0").get_by_text("65", exact=True).wait_for()
    assert admin.committed(IDLE) == {TopicPartition("orders", 1): 0, TopicPartition("payments", 0): 65}


def test_deleting_says_what_is_lost(browser: Browser, broker: Broker, console: Console, admin: Admin) -> None:
    admin.commit("old", {TopicPartition("payments", 0): 30, TopicPartition("orders", 0): 0})
    with window(browser) as page:
        page.goto(f"{console.url}/groups/old")
        page.get_by_role("link", name="delete its offsets").first.click()
        page.get_by_role("heading", name="Delete its offsets of orders?").wait_for()
        page.get_by_role("button", name="Delete these offsets").click()
        page.get_by_text("Its offsets of orders were deleted.").wait_for()
        assert admin.committed("old") == {TopicPartition("payments", 0): 30}
        page.get_by_role("link", name="Delete…").click()
        page.get_by_text("1 committed offset").wait_for()
        assert "it reads 30 records again" in page.inner_text("main")
        keep(page, "group-delete-day")
        page.get_by_role("button", name="Delete the group").click()
        page.get_by_text("old was deleted, with its offsets.").wait_for()
    assert "old" not in [group.name for group in admin.groups()]


def test_a_read_only_console_shows_what_would_be_done_and_does_not(
    browser: Browser, broker: Broker, admin: Admin
) -> None:
    settings = ConsoleSettings(Connection.of(broker.address), read_only=True)
    with Console(settings) as console, window(browser) as page:
        page.goto(f"{console.url}/groups/service-01/reset?to=end")
        page.get_by_text("This console is read-only").wait_for()
        assert page.get_by_role("button", name="Move 1 partition").is_disabled()
        url = f"{console.url}/api/groups/service-01"
        assert httpx.post(f"{url}/reset", json={"to": "end"}).status_code == 403
        assert httpx.delete(url).status_code == 403


def test_without_groups_it_says_what_makes_one(browser: Browser, empty: Console) -> None:
    with window(browser) as page:
        page.goto(f"{empty.url}/groups")
        page.get_by_text("There are no consumer groups yet").wait_for()
        keep(page, "groups-empty-day")


# For programs ----------------------------------------------------------------------------------------


def test_programs_are_told_the_same(console: Console, admin: Admin, member: None) -> None:
    url = f"{console.url}/api/groups"
    wait_for(lambda: httpx.get(f"{url}?only=active").json()["found"] == 1, what="the group with a member")
    told = httpx.get(f"{url}/{SLOW}").json()
    assert [each["client"] for each in told["members"]] == ["warehouse-1"]
    assert told["members"][0]["reads"] == [{"topic": "shipments", "partitions": [0, 1, 2], "awaits": False}]
    assert sum(each["lag"] for each in told["partitions"]) == told["lag"]
    over = httpx.get(f"{url}/{SLOW}/lag").json()
    assert list(over["series"]) == ["shipments[0]", "shipments[1]", "shipments[2]"]


def test_programs_move_and_delete_groups(console: Console, admin: Admin) -> None:
    place = TopicPartition("payments", 0)
    admin.commit("made", {place: 20})
    url = f"{console.url}/api/groups/made"
    wanted = {"to": "shift", "value": "-5"}
    seen = httpx.get(f"{url}/reset", params=wanted).json()
    assert (seen["read_again"], seen["skipped"], seen["refused"]) == (5, 0, "")
    assert admin.committed("made") == {place: 20}
    assert httpx.post(f"{url}/reset", json=wanted).json()["partitions"][0]["new"] == 15
    assert admin.committed("made") == {place: 15}
    for body, said in (
        ({"to": "time", "value": "yesterday"}, "is not a time"),
        ({"to": "offset", "value": "-1"}, "is not an offset"),
        ({"to": "start", "partitions": "4-2"}, "is not a range of partitions"),
        ({"to": "sideways"}, "to"),
    ):
        answer = httpx.post(f"{url}/reset", json=body)
        assert answer.status_code == 400
        assert said in answer.json()["detail"]
    assert httpx.post(f"{url}/reset", json={"to": "start", "topic": "paymentz"}).status_code == 404
    assert httpx.delete(f"{url}/offsets?topic=orders").status_code == 400
    assert httpx.delete(url).status_code == 204
    answer = httpx.delete(url.replace("made", "mode"))
    assert answer.status_code == 404


def test_a_group_in_use_is_neither_moved_nor_deleted(console: Console, admin: Admin, member: None) -> None:
    url = f"{console.url}/api/groups/{SLOW}"
    before = admin.committed(SLOW)
    for answer in (
        httpx.post(f"{url}/reset", json={"to": "end"}),
        httpx.delete(url),
        httpx.delete(f"{url}/offsets?topic=shipments"),
    ):
        assert answer.status_code == 409
        assert "stop them first" in answer.json()["detail"]
    assert admin.committed(SLOW) == before


def test_a_share_group_is_shown_moved_and_deleted(browser: Browser, console: Console, admin: Admin) -> None:
    place = TopicPartition("payments", 0)
    end = admin.bounds([place])[place].end
    admin.move_share_group("mailing", {place: end - 10})
    url = f"{console.url}/api/groups/mailing"
    told = httpx.get(url).json()
    assert (told["kind"], told["state"], told["lag"]) == ("share", "Empty", 10)
    with window(browser) as page:
        page.goto(f"{console.url}/groups/mailing")
        page.get_by_role("columnheader", name="Start").wait_for()
        page.get_by_text("10 records unfinished").wait_for()
        page.goto(f"{console.url}/groups?search=mailing")
        page.get_by_title("A share group").wait_for()
    assert httpx.post(f"{url}/reset", json={"to": "start"}).json()["partitions"][0]["old"] == end - 10
    assert admin.share_offsets("mailing")[place].start == 0
    assert httpx.delete(f"{url}/offsets?topic=payments").status_code == 204
    assert admin.share_offsets("mailing") == {}
    assert httpx.delete(url).status_code == 204
    assert "mailing" not in {group.name for group in admin.groups()}
