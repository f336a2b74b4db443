"""Event streaming in one process: a log that speaks the Kafka protocol, and pipelines on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.embedded import Broker
    from millstream.pipeline.dsl.pattern_steps import no, step
    from millstream.pipeline.dsl.processors import Processor
    from millstream.pipeline.dsl.windows.python_aggregates import aggregate
    from millstream.pipeline.topology import Topology

# Loaded on first use: a broker should not pay for Spark, nor a pipeline for a broker.
_PUBLIC = {
    "Broker": "millstream.embedded",
    "Processor": "millstream.pipeline.dsl.processors",
    "Topology": "millstream.pipeline.topology",
    "aggregate": "millstream.pipeline.dsl.windows.python_aggregates",
    "no": "millstream.pipeline.dsl.pattern_steps",
    "step": "millstream.pipeline.dsl.pattern_steps",
}

__all__ = ["Broker", "Processor", "Topology", "aggregate", "no", "step"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from millstream.core.extras import spark_extra

    with spark_extra():
        return getattr(importlib.import_module(_PUBLIC[name]), name)
