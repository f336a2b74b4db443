"""The console on both brokers: every link leads to a page, and what is not there has a reason."""

from __future__ import annotations

import asyncio
import html
import re
from collections import deque
from collections.abc import Iterator

import httpx
import pytest

from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition
from millstream.console.observing.request_pool import RequestPool
from millstream.console.observing.sampler import Sampler
from millstream.console.run import Console
from millstream.console.screens import SCREENS
from tests.support.waiting import wait_for

LINK = re.compile(r'href="(/[^"]*)"')
PAGES = 60


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    with Console(address) as console, httpx.Client(base_url=console.url, timeout=90) as client:
        wait_for(lambda: client.get("/api/overview").json().get("detailed"), timeout=90, what="all is seen")
        yield client


def test_every_link_leads_somewhere(http: httpx.Client, admin: Admin, group: str, name: str) -> None:
    """Beginning with what a test's own topic and group are linked from, and with every screen."""
    wait_for(lambda: name in http.get(f"/topics?search={name}").text, timeout=90, what="the topic is seen")
    begin = [f"/topics?search={name}", *(screen.path for screen in SCREENS if screen.handlers)]
    seen = set(begin)
    open_ = deque(begin)
    while open_ and len(seen) < PAGES:
        path = open_.popleft()
        answer = http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[-600:]}"
        for link in map(html.unescape, LINK.findall(answer.text)):
            # Others' topics come and go meanwhile.
            if link not in seen and ("/static/" not in link) and (name in link or link.count("/") < 2):
                seen.add(link)
                open_.append(link)
    assert {screen.path for screen in SCREENS if screen.handlers} <= seen


def test_a_record_with_half_a_letter_is_shown_as_it_was_written(
    http: httpx.Client, admin: Admin, name: str
) -> None:
    admin.create_topic(name, partitions=1)
    text = r'{"u": "\ud800", "n": 1e400, "u": 2}'
    send_one(admin.connection, name, Outgoing(text.encode()))
    wait_for(lambda: http.get(f"/api/topics/{name}").status_code == 200, what="the topic is seen")
    told = http.get(f"/api/topics/{name}/messages")
    assert told.status_code == 200
    assert [each["value"]["text"] for each in told.json()["messages"]] == [text]
    for page in (f"/topics/{name}", f"/topics/{name}/messages/0/0"):
        answer = http.get(page)
        assert answer.status_code == 200, answer.text[-600:]
        assert r"\ud800" in answer.text
        assert "1e400" in answer.text


def test_a_topic_deleted_during_a_look_is_not_a_broker_that_is_away(admin: Admin, name: str) -> None:
    admin.create_topic(name)

    def look(admin: Admin) -> list[str]:
        there = admin.topics()
        if name in there:
            admin.delete_topics([name])
        admin.ends(TopicPartition(topic, 0) for topic in there if topic == name)
        return list(there)

    async def main() -> None:
        sampler = Sampler(RequestPool(admin.connection))
        assert name not in await sampler._asked(look)
        await sampler.stop()

    asyncio.run(main())


def test_what_a_broker_does_not_tell_is_said_and_not_made_up(http: httpx.Client) -> None:
    told = http.get("/api/overview").json()
    page = http.get("/").text
    for node in told["brokers"]:
        at = f"{node['host']}:{node['port']}"
        known = any(disk["broker"] == at for disk in told["disks"])
        assert known or "not reported by this broker" in page
    assert (told["bytes"] is None) == ("size unknown" in page)
