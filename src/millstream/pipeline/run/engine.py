"""The Spark that a job runs on: the caller's session, the one of this process, or one that is started here.

Spark allows one JVM and one master per process. So jobs that were given no session share the one that was
started for the first of them, and it ends with the last of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import ConfigError, MillstreamError
from millstream.core.extras import spark_extra
from millstream.pipeline.spark.jvm import end_engine, noticing_its_end, start_engine
from millstream.pipeline.spark.session import check_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Engine:
    """Which Spark, and how it is started. ``waiting`` is entered while something takes seconds, with what
    that is."""

    master: str | None = None  # None: this machine, with all its cores
    options: Mapping[str, str] = field(default_factory=dict)
    ui: bool = False
    spark: SparkSession | None = None  # the caller's session, which is left as it is
    stopping: Callable[[], bool] = bool  # True once the user wants to stop
    say: Callable[[str], None] = field(default=lambda line: None)
    waiting: Callable[[str], AbstractContextManager[None]] = field(default=lambda what: nullcontext())

    def check(self) -> None:
        """Raise ConfigError if a job can't run here, before anything is done for it."""
        with spark_extra():
            import py4j  # type: ignore[import-untyped]  # noqa: F401  (pyspark-client lacks it, and Spark)
            import pyspark  # noqa: F401
        session = self._existing()
        if session is None:
            return
        if self.master is not None or self.options or self.ui:
            raise ConfigError(
                "a master, Spark settings and the UI are chosen when a session is created, and a session is"
                " running in this process already. Leave them out, or stop that session first"
            )
        check_python(session)

    def _existing(self) -> SparkSession | None:
        """The session that this job was given or, if another program's part has started one in this process,
        that one; None if a session is to be started."""
        if self.spark is not None:
            return _checked(self.spark)
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context = SparkContext._active_spark_context
        if _shared.in_use or context is None or context._jsc is None:
            return None
        return SparkSession.builder.getOrCreate()

    @contextmanager
    def session(
        self, name: str, home: Path, defaults: Mapping[str, str] | None = None
    ) -> Iterator[SparkSession | None]:
        """The session; None if the user stopped waiting. ``defaults`` are settings that the options override.
        The log of a Spark that is started is in ``home``."""
        existing = self._existing()
        if existing is not None:
            with _noticing_a_stop(existing), noticing_its_end(None):
                yield existing
            return
        engine, log_file = _shared.join(self, name, home / "spark.log", defaults or {})
        try:
            session = self._started(engine)
            if session is None:
                yield None
                return
            with noticing_its_end(log_file):
                yield session
        finally:
            _shared.leave()

    def _started(self, engine: Future[SparkSession]) -> SparkSession | None:
        if engine.done():
            return engine.result()
        began = time.monotonic()
        with self.waiting("starting Spark"):
            while not engine.done():
                if self.stopping():
                    return None
                time.sleep(0.05)
        session = engine.result()
        self.say(f"Spark {session.version} started in {time.monotonic() - began:.0f} s")
        return session


class _Shared:
    """The Spark that was started in this process, and how many jobs use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._engine: Future[SparkSession] | None = None
        self._how: tuple[object, ...] = ()
        self._log_file = Path()

    @property
    def in_use(self) -> bool:
        return self._engine is not None

    def join(
        self, wanted: Engine, name: str, log_file: Path, defaults: Mapping[str, str]
    ) -> tuple[Future[SparkSession], Path]:
        how = (wanted.master, dict(wanted.options), wanted.ui)
        with self._lock:
            if self._engine is None:
                settings = {**defaults, **wanted.options}
                self._engine = start_engine(
                    name, master=wanted.master, log_file=log_file, settings=settings, ui=wanted.ui
                )
                self._how, self._log_file = how, log_file
            elif how != self._how:
                raise ConfigError(
                    "another job in this process has started Spark with another master, other settings or"
                    " another choice of the UI. Jobs of one process share one Spark: give them the same"
                )
            self._users += 1
            return self._engine, self._log_file

    def leave(self) -> None:
        """Spark ends with its last user. If it is still starting, it ends once it has started."""
        with self._lock:
            self._users -= 1
            if self._engine is not None and not self._users:
                self._engine.add_done_callback(self._end)

    def _end(self, engine: Future[SparkSession]) -> None:
        with self._lock:
            if self._users or self._engine is not engine:
                return  # another job came meanwhile
            try:
                if engine.exception() is None:
                    end_engine(engine.result())
            finally:
                self._engine = None


_shared = _Shared()


@contextmanager
def _noticing_a_stop(session: SparkSession) -> Iterator[None]:
    """Raise an error of ours if the session's owner stopped it inside."""
    cause: Exception | None = None
    try:
        yield
    except Exception as error:
        if session._sc._jsc is not None:
            raise
        cause = error
    if session._sc._jsc is None:
        raise MillstreamError(
            "the Spark session was stopped while the job was running in it. Stop the job first. Started"
            " again, it continues from its checkpoint"
        ) from cause


def _checked(spark: Any) -> SparkSession:
    """Refuse what can't run a job."""

    if not hasattr(spark, "_jsparkSession"):
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                "spark= is a session of Spark Connect, whose JVM runs elsewhere. A job needs a session whose"
                " driver is this process: SparkSession.builder.master(...).getOrCreate()"
            )
        raise ConfigError(f"spark= takes a SparkSession, and {spark!r} is not one")
    session: SparkSession = spark
    if session._sc._jsc is None:
        raise ConfigError("the SparkSession that was given has been stopped; create another")
    return session
