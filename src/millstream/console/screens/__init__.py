"""The screens of the console: one module for each, with its pages, its part of the REST interface and its
live fragments. It may import the rest of the console; only ``app`` imports it. Start reading at ``SCREENS``,
which has them in the order of the navigation, and at ``overview``, the simplest. The docstring of
``millstream.console`` says how to add a screen."""

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
