"""Decodes values by a registry's schemas for pages, and does not wait again and again for one that is away.

A registry that did not answer is asked again only after 10 s. Otherwise a page of records would wait once for
each record that names a schema.
"""

from __future__ import annotations

import time
from typing import Any

from millstream.core.errors import RegistryUnavailable
from millstream.registry import needs_extra

_TIMEOUT = 3.0  # seconds
_AGAIN = 10.0


class Schemas:
    """Decodes by the registry at a URL. May be used by several threads."""

    def __init__(self, url: str) -> None:
        with needs_extra():
            from millstream.registry.client import RegistryClient
            from millstream.registry.values import Decoder

        self._decoder = Decoder(RegistryClient(url, timeout=_TIMEOUT))
        self._away = ""
        self._away_until = 0.0

    def decode(self, data: bytes | None, type: str | None = None) -> Any:
        """The value of bytes that begin with a schema id; raises as ``registry.values.Decoder`` does."""
        if time.monotonic() < self._away_until:
            raise RegistryUnavailable(self._away)
        try:
            return self._decoder.decode(data, type)
        except RegistryUnavailable as error:
            self._away, self._away_until = str(error), time.monotonic() + _AGAIN
            raise
