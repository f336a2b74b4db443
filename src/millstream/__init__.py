"""Event streaming in one process: a log that speaks the Kafka protocol, and pipelines on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.core.errors import (
        BrokerUnavailable,
        ConfigError,
        DataDirectoryError,
        DataLoss,
        InputError,
        InvalidSchema,
        MillstreamError,
        OperatorFailed,
        ProducerFenced,
        RegistryRefused,
        RegistryUnavailable,
        RequestFailed,
        StateConnectionError,
        StateError,
        TopologyError,
        TransactionAborted,
        TransactionDecided,
        UndecodableRecord,
    )
    from millstream.embedded import Broker
    from millstream.pipeline.dsl.pattern_steps import Step, absent, step
    from millstream.pipeline.dsl.processors import Processor
    from millstream.pipeline.dsl.streams import Source, Stream, Table, Window
    from millstream.pipeline.dsl.windows.python_aggregates import aggregate
    from millstream.pipeline.kernel.event import Event
    from millstream.pipeline.kernel.processor.processor import Context, Timer
    from millstream.pipeline.topology import Topology
    from millstream.registry.service.running import Registry
    from millstream.views.watching import ViewChange, Watcher, watch

    __version__: str

_ERRORS = (
    "BrokerUnavailable",
    "ConfigError",
    "DataDirectoryError",
    "DataLoss",
    "InputError",
    "InvalidSchema",
    "MillstreamError",
    "OperatorFailed",
    "ProducerFenced",
    "RegistryRefused",
    "RegistryUnavailable",
    "RequestFailed",
    "StateConnectionError",
    "StateError",
    "TopologyError",
    "TransactionAborted",
    "TransactionDecided",
    "UndecodableRecord",
)
# Loaded on first use: a broker should not pay for Spark, nor a pipeline for a broker.
_PUBLIC = {
    "Broker": "millstream.embedded",
    "Context": "millstream.pipeline.kernel.processor.processor",
    "Event": "millstream.pipeline.kernel.event",
    "Processor": "millstream.pipeline.dsl.processors",
    "Registry": "millstream.registry.service.running",
    "Source": "millstream.pipeline.dsl.streams",
    "Step": "millstream.pipeline.dsl.pattern_steps",
    "Stream": "millstream.pipeline.dsl.streams",
    "Table": "millstream.pipeline.dsl.streams",
    "Timer": "millstream.pipeline.kernel.processor.processor",
    "Topology": "millstream.pipeline.topology",
    "ViewChange": "millstream.views.watching",
    "Watcher": "millstream.views.watching",
    "Window": "millstream.pipeline.dsl.streams",
    "absent": "millstream.pipeline.dsl.pattern_steps",
    "aggregate": "millstream.pipeline.dsl.windows.python_aggregates",
    "step": "millstream.pipeline.dsl.pattern_steps",
    "watch": "millstream.views.watching",
    **dict.fromkeys(_ERRORS, "millstream.core.errors"),
}

__all__ = [
    "Broker",
    "BrokerUnavailable",
    "ConfigError",
    "Context",
    "DataDirectoryError",
    "DataLoss",
    "Event",
    "InputError",
    "InvalidSchema",
    "MillstreamError",
    "OperatorFailed",
    "Processor",
    "ProducerFenced",
    "Registry",
    "RegistryRefused",
    "RegistryUnavailable",
    "RequestFailed",
    "Source",
    "StateConnectionError",
    "StateError",
    "Step",
    "Stream",
    "Table",
    "Timer",
    "Topology",
    "TopologyError",
    "TransactionAborted",
    "TransactionDecided",
    "UndecodableRecord",
    "ViewChange",
    "Watcher",
    "Window",
    "__version__",
    "absent",
    "aggregate",
    "step",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("millstream")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    from millstream.core.extras import spark_extra

    with spark_extra():
        return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
