"""Pipelines tried out in a test: the same operators, no broker, no Spark, no waiting.

May import: ``pipeline``. See docs/testing-pipelines.md.
"""

from __future__ import annotations

from millstream.extras import testing_extra

with testing_extra():
    from millstream.testing.driver import Driver
    from millstream.testing.records import Record

__all__ = ["Driver", "Record"]
