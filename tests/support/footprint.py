"""What a process and a Spark session look like from outside: for tests that nothing of a job stays behind."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTIES = ("sql.streaming.queryId", "sql.streaming.batchId", "spark.job.description")


def of_process() -> dict[str, Any]:
    """The environment, the import path, the signal handlers, and every logger that has been touched."""
    loggers = {"": logging.getLogger(), **logging.Logger.manager.loggerDict}
    return {
        "environment": dict(os.environ),
        "path": list(sys.path),
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)},
        "by value": _shipped(),
        "logging": {
            name: (one.level, one.propagate, one.disabled, list(one.handlers), list(one.filters))
            for name, one in loggers.items()
            if isinstance(one, logging.Logger)
        },
        "disabled": logging.root.manager.disable,
    }


def of_session(spark: SparkSession) -> dict[str, Any]:
    """The settings, the catalogue, the queries and their listeners, and the log level of Spark itself."""
    listeners = spark._jsparkSession.streams().listListeners()
    log4j = spark._jvm.org.apache.logging.log4j.LogManager
    return {
        "settings": dict(spark.conf.getAll),
        "views": sorted(table.name for table in spark.catalog.listTables() if table.isTemporary),
        "functions": sorted(row.function for row in spark.sql("SHOW USER FUNCTIONS").collect()),
        "listeners": sorted(listener.toString() for listener in listeners),
        "queries": sorted(str(query.name) for query in spark.streams.active),
        "log level": log4j.getRootLogger().getLevel().toString(),
        "hadoop": spark._jsc.hadoopConfiguration().size(),
        "properties": [
            spark.sparkContext.getLocalProperty(name)
            for name in ("sql.streaming.queryId", "spark.job.description")
        ],
    }


def _shipped() -> set[str]:
    """The modules whose code travels with every function."""
    cloudpickle = sys.modules.get("pyspark.cloudpickle.cloudpickle")
    return set() if cloudpickle is None else set(cloudpickle.list_registry_pickle_by_value())


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What is different, by kind. A logger that did not exist before counts if it is not as it was made."""
    found: dict[str, Any] = {}
    for kind, was in before.items():
        now = after[kind]
        if kind == "logging":
            now = {name: how for name, how in now.items() if name in was}
        if now != was:
            found[kind] = _difference(was, now)
    return found


def _difference(was: Any, now: Any) -> Any:
    if not isinstance(was, dict):
        return was, now
    return {
        name: (was.get(name), now.get(name))
        for name in was.keys() | now.keys()
        if was.get(name) != now.get(name)
    }
