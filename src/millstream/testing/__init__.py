"""Runs pipelines inside a test: the same operators, without a broker, without Spark and without waiting. May
import ``core``, ``sqltypes``, ``views`` and ``pipeline``. Imported by ``millstream.pytest_plugin`` and the
examples. Start with ``driver``, which tests use; docs/guides/testing-pipelines.md is its guide.
"""

from __future__ import annotations

from millstream.core.extras import testing_extra

with testing_extra():
    from millstream.testing.driver import Driver
    from millstream.testing.records import Record

__all__ = ["Driver", "Record"]
