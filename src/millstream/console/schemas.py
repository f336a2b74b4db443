"""Decoding by a registry's schemas, for pages: a registry that is away is asked again only after a while, so
that a page of records that all name a schema does not wait once for each of them."""

from __future__ import annotations

import time
from typing import Any

from millstream.errors import RegistryUnavailable
from millstream.registry import needs_extra

_TIMEOUT = 3.0  # seconds
_AGAIN = 10.0


class Schemas:
    """Of the registry at a URL. May be used by several threads."""

    def __init__(self, url: str) -> None:
        with needs_extra():
            from millstream.registry.client import RegistryClient
            from millstream.registry.values import Decoder

        self._decoder = Decoder(RegistryClient(url, timeout=_TIMEOUT))
        self._away = ""
        self._away_until = 0.0

    def decode(self, data: bytes | None, type: str | None = None) -> Any:
        """The value of bytes that name their schema; raises as ``registry.values.Decoder`` does."""
        if time.monotonic() < self._away_until:
            raise RegistryUnavailable(self._away)
        try:
            return self._decoder.decode(data, type)
        except RegistryUnavailable as error:
            self._away, self._away_until = str(error), time.monotonic() + _AGAIN
            raise
