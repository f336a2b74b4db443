"""Set up log output: lines for people or for machines, and a limit on repeated ones."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(level: str, line_format: str) -> None:
    """Send the package's log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    if line_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")
        )
    logger = logging.getLogger("millstream")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class RateLimited:
    """Logs the first few messages of a kind in ten seconds, then how many more there were."""

    WINDOW = 10.0
    FIRST = 5

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._seen: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str, *args: object) -> None:
        self._say(kind, logging.WARNING, message, args, None)

    def error(self, kind: str, message: str, *args: object, exc_info: Exception | None = None) -> None:
        self._say(kind, logging.ERROR, message, args, exc_info)

    def _say(
        self, kind: str, level: int, message: str, args: tuple[object, ...], exc_info: Exception | None
    ) -> None:
        now = time.monotonic()
        since, count = self._seen.get(kind, (now, 0))
        if now - since >= self.WINDOW:
            if count > self.FIRST:
                self._logger.log(level, "%d more like the last", count - self.FIRST)
            since, count = now, 0
        self._seen[kind] = since, count + 1
        if count < self.FIRST:
            self._logger.log(level, message, *args, exc_info=exc_info)
