"""The settings of a topic for people: the value, the inherited value and the meaning of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.client.protocol.topic_settings import Kind, Source, TopicSetting, settings_of_ours
from millstream.console.paging import has_words
from millstream.core.units import bytes_text, duration_text

_NO_LIMIT = 2**31 - 1  # the largest 32-bit number, by which some settings mean "never" or "no limit"
_AS_ABOVE = -2
_OURS = "millstream."
_STATES = (".state",)  # reported among the settings, but never set


@dataclass(frozen=True, slots=True)
class SettingShown:
    """One setting. ``plain`` is the value in words, if its number alone says little. A ``read_only`` setting
    can't be changed while the topic exists. An ``own`` setting was set for this topic, and can be reset to
    ``inherited``.
    """

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
    """The settings of a topic. ``own`` is how many were set for this topic. ``states`` are what a broker
    reports about the topic among its settings, by name. ``lacking`` are settings of millstream's broker that
    this broker does not have.
    """

    settings: list[SettingShown]
    own: int
    states: dict[str, str]
    lacking: list[LackingSetting]


def settings_shown(told: list[TopicSetting], search: str = "", *, own_only: bool = False) -> TopicSettings:
    """The settings that a search finds by name or meaning, the topic's own first."""
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
    """A value in words: ``7 d`` for 604800000. Empty if the value speaks for itself."""
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
