"""The names of the counts that a running job keeps of its rows (``planning/counting.py`` says what for)."""

from __future__ import annotations

PASSED = "passed"  # how the names of Spark's observed metrics of an output begin: ``passed 0``


def source_count(name: str) -> str:
    return f"source {name}"


def rejected_count(name: str) -> str:
    return f"rejected {name}"


def stream_count(name: str) -> str:
    return f"stream {name}"


def sink_count(label: str) -> str:
    return f"sink {label}"
