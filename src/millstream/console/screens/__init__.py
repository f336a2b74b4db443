"""The screens, in the order of the navigation. How to add one: see the package's ``__init__``."""

from __future__ import annotations

from millstream.console.backend import Screen
from millstream.console.screens import groups, overview, topics

SCREENS: tuple[Screen, ...] = (
    overview.SCREEN,
    topics.SCREEN,
    groups.SCREEN,
    Screen("queues", "Queues", "/queues", reason="Queues (share groups) come with a later version."),
    Screen("connectors", "Connectors", "/connectors", reason="Connectors come with a later version."),
    Screen("webhooks", "Webhooks", "/webhooks", reason="Webhooks come with a later version."),
)
