"""Run a broker inside your own process, on a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import Any

from millstream.core.config import BrokerConfig, settings_of, with_changes
from millstream.core.topic_config import TopicConfig


class Broker:
    """A whole broker on a thread of this process, for tests, notebooks and small programs.

        with millstream.Broker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})

    ``data_dir`` is where records are kept; without one they are in memory and gone with the broker.
    ``port`` 0 takes a free one. Any broker setting can be given with underscores for dots
    (``num_partitions=3``), and topic defaults as ``topic={"retention.ms": "60000"}``. It listens on
    loopback unless ``listen`` says otherwise.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        topic: dict[str, str] | None = None,
        **settings: Any,
    ) -> None:
        known = settings_of(BrokerConfig)
        changes = {}
        for name, value in settings.items():
            public = name.replace("_", ".")
            changes[public] = known[public].text(value) if public in known else str(value)
        changes.setdefault("listen", f"127.0.0.1:{port}")
        if data_dir is not None:
            changes["data"] = os.fspath(data_dir)
        defaults = BrokerConfig(topic=with_changes(TopicConfig(), topic or {}))
        self.config = with_changes(defaults, changes)
        self.address = ""  # HOST:PORT, once started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> Broker:
        """Start the broker and return when clients can connect. Raises MillstreamError if it can't start."""
        if self._thread is not None:
            raise RuntimeError("this broker has already been started")
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="millstream-broker", daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop the broker cleanly. A second call does nothing."""
        if self._loop is None or self._stop is None or self._thread is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, ready: threading.Event) -> None:
        import uvloop

        from millstream.broker.server import serve

        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()

            def listening(address: str) -> None:
                self.address = address
                ready.set()

            await serve(self.config, on_ready=listening, stop=self._stop, hurry=asyncio.Event())

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            self._failure = error
        finally:
            ready.set()
