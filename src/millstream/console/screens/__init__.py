"""The screens, in the order of the navigation. How to add one: see the package's ``__init__``."""

from __future__ import annotations

from millstream.console.backend import Screen
from millstream.console.screens import groups, overview, pipelines, topics, views

SCREENS: tuple[Screen, ...] = (
    overview.SCREEN,
    topics.SCREEN,
    groups.SCREEN,
    pipelines.SCREEN,
    views.SCREEN,
)
