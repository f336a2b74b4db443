"""Request handlers, a short file per family; importing this package registers them all."""

from __future__ import annotations

from millstream.broker.api import fetch, list_offsets, metadata, produce, versions

__all__ = ["fetch", "list_offsets", "metadata", "produce", "versions"]
