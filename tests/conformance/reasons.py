"""Tests that pass on Apache Kafka and not here, and why. ``docs/conformance.md`` says the same in words."""

from __future__ import annotations

REASONS: dict[str, str] = {}
