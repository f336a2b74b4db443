"""Drives Debian's Chromium with Playwright, to test the console as people see it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
DESKTOP = (1280, 900)
PHONE = (390, 844)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Skips the test if there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs Debian's chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Tests run as root on some machines, where Chromium refuses its sandbox.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def window(browser: Browser, *, night: bool = False, size: tuple[int, int] = DESKTOP) -> Iterator[Page]:
    """A page in its own window. An error in a script, a request to another host, or a stream that does not
    exist fails the test.
    """
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if night else "light",
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
    page.on(
        "request",
        lambda asked: None if asked.url.startswith("http://127.0.0.1:") else complaints.append(asked.url),
    )
    page.on(
        "response",
        lambda said: (
            complaints.append(f"{said.status} {said.url}")
            if "/live" in said.url and said.status == 404
            else None
        ),
    )
    try:
        yield page
        assert complaints == []
    finally:
        context.close()


AXE = "axe-core-4.14.0"
_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")


@cache
def _axe() -> str:
    """The source of the accessibility checker, from npm. Skips the test if it can't be downloaded."""
    script = SCREENSHOTS.parent / AXE / "package" / "axe.min.js"
    if not script.exists():
        home = script.parents[1]
        home.mkdir(parents=True, exist_ok=True)
        name, _, version = AXE.rpartition("-")
        packed = subprocess.run(
            ["npm", "pack", "--silent", f"{name}@{version}"], cwd=home, capture_output=True
        )
        if packed.returncode:
            pytest.skip(f"{AXE} can't be had from npm: {packed.stderr.decode()[-200:]}")
        with tarfile.open(home / f"{AXE}.tgz") as archive:
            archive.extractall(home, filter="data")
    return script.read_text()


def barriers(page: Page, rules: Sequence[str] = _RULES) -> list[str]:
    """The accessibility problems that axe-core finds: contrast, names, order, use of the keyboard."""
    page.evaluate(_axe())
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", list(rules))
    return [
        f"{each['id']} ({each['help']}): {node['html'][:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def keep(page: Page, name: str) -> None:
    """Save a screenshot in the build output, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
