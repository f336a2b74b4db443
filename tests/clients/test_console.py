"""The console on both brokers: every link leads to a page, and what is not there has a reason."""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Iterator

import httpx
import pytest

from millstream.client.admin import Admin
from millstream.console.backend import Screen
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


def test_what_is_not_there_yet_is_greyed_out_with_the_reason(http: httpx.Client) -> None:
    page = http.get("/").text
    off: list[Screen] = [screen for screen in SCREENS if screen.reason]
    assert off
    for screen in off:
        assert f'aria-disabled="true" title="{html.escape(screen.reason)}">{screen.title}' in page


def test_what_a_broker_does_not_tell_is_said_and_not_made_up(http: httpx.Client) -> None:
    told = http.get("/api/overview").json()
    page = http.get("/").text
    for node in told["brokers"]:
        at = f"{node['host']}:{node['port']}"
        known = any(disk["broker"] == at for disk in told["disks"])
        assert known or "not told by this broker" in page
    assert (told["bytes"] is None) == ("size not told" in page)
