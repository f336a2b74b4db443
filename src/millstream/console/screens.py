"""The screens of the console, in the order of the navigation. Start at ``overview.pages``, the simplest."""

from __future__ import annotations

from millstream.console.backend import Screen
from millstream.console.groups import pages as groups
from millstream.console.overview import pages as overview
from millstream.console.pipelines import pages as pipelines
from millstream.console.topics import listing_pages as topics
from millstream.console.views import pages as views

SCREENS: tuple[Screen, ...] = (
    overview.SCREEN,
    topics.SCREEN,
    groups.SCREEN,
    pipelines.SCREEN,
    views.SCREEN,
)
