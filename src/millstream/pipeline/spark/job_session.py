"""What a session needs to run a job's queries: checks, settings, and the user's code on its workers.

The session and the process belong to the user. What is changed in them is confined to a block (a query's
start, a thread, a job) and undone at its end, for each job by itself: decision 033.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.load import user_modules
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.spark.failures import condensed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What stateful operators on the kernel need: a store for state of any size, which writes only what changed.
# Spark's own windows are faster in its default store.
STATE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


PLAN_SETTINGS = {
    # For every batch that is handed to foreachBatch, Spark derives all that its plan says about its rows.
    # With conditions over many columns, that grows as their combinations do, until memory runs out. Nothing
    # that is done with a batch here benefits from it.
    "spark.sql.constraintPropagation.enabled": "false",
    # Each output alone passes Spark's check (``check_supported``). Spark would also refuse several windows
    # side by side in update mode. Only windows over windows are wrong, and those are refused when they are
    # declared.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
}


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change a session's settings for queries that start inside, each with the settings of that moment. The
    session is the user's, so its old settings are restored."""
    before = spark.conf.getAll
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    try:
        yield
    finally:
        for setting in settings:
            if setting in before:
                spark.conf.set(setting, before[setting])
            else:
                spark.conf.unset(setting)


_SETTING = threading.Lock()  # a query that is restarted must not start with the settings of another


def started(spark: SparkSession, settings: Mapping[str, str], writer: DataStreamWriter) -> StreamingQuery:
    with _SETTING, _set(spark, settings):
        return writer.start()


def check_supported(spark: SparkSession, frame: DataFrame, mode: str, at: str) -> None:
    """Applies Spark's own check of what a streaming query may do, to the rows of one output."""
    java: Any = spark._jvm
    modes = java.org.apache.spark.sql.streaming.OutputMode
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), modes.Append() if mode == "append" else modes.Update()
        )
    except Exception as error:
        raise TopologyError(f"Spark can't run this as a stream: {condensed(error)}", where=at) from error


def check_session(spark: SparkSession, flow: Topology) -> None:
    """Refuses settings of Spark's under which a task may run twice without anyone noticing."""
    if flow.guarantee != "exactly-once":
        return
    conf = spark.sparkContext.getConf()
    if str(conf.get("spark.speculation", "false")).lower() == "true":
        raise TopologyError(
            "guarantee='exactly-once' and spark.speculation=true: two attempts of a task that run at the"
            " same time would write twice. Turn speculation off",
            where=flow.at,
        )
    if conf.get("spark.stage.maxConsecutiveAttempts") != "1":
        raise TopologyError(
            "guarantee='exactly-once' needs spark.stage.maxConsecutiveAttempts=1: Spark repeats a stage"
            " without telling its tasks, and the rows they had already sent would be lost. Set it where"
            " you create the session; `millstream run` does so",
            where=flow.at,
        )


def load_pandas() -> None:
    """Load pandas now, in one thread. The first batches of several queries run at the same moment, and
    pyarrow loads pandas with the first value that it converts. Threads that do so together can find it half
    loaded.
    """
    with suppress(ImportError):  # pyarrow works without it
        import_module("pandas")


@contextmanager
def quiet_pyspark() -> Iterator[None]:
    """Silence PySpark in this thread. It logs every failed analysis, with its whole plan, before it raises
    it. The error is reported once, by the code that catches it."""
    from pyspark.logger import PySparkLogger

    thread = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    loggers = []
    for name in _ANALYSIS_LOGGERS:
        is_new = name not in logging.Logger.manager.loggerDict
        loggers.append(logger := PySparkLogger.getLogger(name))
        if is_new:
            logger.propagate = False  # as PySpark leaves it after its first message
        logger.addFilter(elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(elsewhere)


_ANALYSIS_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


@contextmanager
def quiet_failures(reported: Callable[[BaseException], bool]) -> Iterator[None]:
    """Silence Py4J, which logs each exception that it carries from Python to the JVM, for those that the job
    reports itself."""
    logger = logging.getLogger("py4j.clientserver")

    def unreported(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return error is None or not reported(error)

    logger.addFilter(unreported)
    try:
        yield
    finally:
        logger.removeFilter(unreported)


@contextmanager
def shipped_code(flow: Topology) -> Iterator[None]:
    """Executors can't import the user's file or the modules beside it, so these travel with the job. A
    worker that had imported them would also keep the old code after the file was changed."""
    from pyspark.cloudpickle import cloudpickle

    modules = [module for name, module in user_modules(flow).items() if module.__name__ == name]
    with _SHIPPING:
        theirs = cloudpickle.list_registry_pickle_by_value() - _shipped.keys()
        modules = [module for module in modules if module.__name__ not in theirs]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
            _shipped[module.__name__] += 1
    try:
        yield
    finally:
        with _SHIPPING:
            for module in modules:
                _shipped[module.__name__] -= 1
                if not _shipped[module.__name__]:
                    del _shipped[module.__name__]
                    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
                        cloudpickle.unregister_pickle_by_value(module)


_SHIPPING = threading.Lock()
_shipped: Counter[str] = Counter()  # by module, how many running jobs have it travel with them
