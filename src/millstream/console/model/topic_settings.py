"""A topic's settings as people read them: what each is, what it would be, what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.client.topic_settings import Kind, Source, TopicSetting, settings_of_ours
from millstream.console.model.paging import has_words
from millstream.units import bytes_text, duration_text

_NO_LIMIT = 2**31 - 1  # larger numbers mean "never", or "no limit"
_AS_ABOVE = -2
_OURS = "millstream."
_STATES = (".state",)  # what is told and never set


@dataclass(frozen=True, slots=True)
class SettingShown:
    """``plain`` is the value in words, where its number says little. ``read_only`` ones can't be changed
    while the topic exists; ``own`` ones are this topic's, and can be reset to ``inherited``."""

    name: str
    value: str | None
    plain: str
    inherited: str | None
    inherited_plain: str
    source: Source
    own: bool
    kind: Kind
    read_only: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class LackingSetting:
    name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """``own`` is how many the topic has of its own. ``states`` are what a broker says of the topic among its
    settings, by name. ``lacking`` are settings of millstream's broker that this one has not."""

    settings: list[SettingShown]
    own: int
    states: dict[str, str]
    lacking: list[LackingSetting]


def settings_shown(told: list[TopicSetting], search: str = "", *, own_only: bool = False) -> TopicSettings:
    """Those that a search finds in name or meaning; the topic's own first."""
    settings = [setting for setting in told if not setting.name.endswith(_STATES)]
    shown = [
        SettingShown(
            setting.name,
            setting.value,
            in_words(setting.name, setting.value),
            setting.inherited,
            in_words(setting.name, setting.inherited),
            setting.source,
            setting.source == "topic",
            setting.kind,
            setting.read_only,
            setting.meaning,
        )
        for setting in settings
        if has_words(f"{setting.name} {setting.meaning}", search)
        and (setting.source == "topic" or not own_only)
    ]
    shown.sort(key=lambda setting: (not setting.own, setting.name.startswith(_OURS), setting.name))
    return TopicSettings(
        shown,
        sum(setting.source == "topic" for setting in settings),
        {setting.name: setting.value or "" for setting in told if setting.name.endswith(_STATES)},
        []
        if own_only
        else [
            LackingSetting(name, meaning)
            for name, meaning in settings_of_ours({setting.name for setting in told}).items()
            if has_words(f"{name} {meaning}", search)
        ],
    )


_UNITS: dict[str, Callable[[int], str]] = {"ms": duration_text, "bytes": bytes_text}


def in_words(name: str, value: str | None) -> str:
    """``7 d`` for 604800000; empty where the value says it itself."""
    if value is None or not value.lstrip("-").isdigit():
        return ""
    number, unit = int(value), name.rsplit(".", 1)[-1]
    if unit not in _UNITS and number <= _NO_LIMIT:
        return ""
    if number == -1 or number > 2**53 or (number == _NO_LIMIT and unit not in _UNITS):
        return "no limit"
    if number == _AS_ABOVE and name.startswith("local."):
        return "as " + name.removeprefix("local.")
    if unit not in _UNITS or number <= 0:
        return ""
    return _UNITS[unit](number)
