"""A thread pool for blocking calls that does not keep the process from ending.

At exit Python waits for its own pools, however long a call takes to a storage that does not answer. It does
not wait for these threads: calls that have not returned in time are abandoned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple[Future[Any], Callable[[], Any]]


class Threads(Executor):
    """A pool of at most ``count`` threads. Each is started when it is first needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._closed = False

    def submit(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Call the function on a thread. Raises RuntimeError once the pool is closed."""
        if self._closed:
            raise RuntimeError("these threads are closed")
        future: Future[T] = Future()
        self._jobs.put((future, lambda: function(*arguments, **named)))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            thread = threading.Thread(
                target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del job, future, call  # so that they are not kept alive while waiting for the next job
            self._idle.release()

    def close(self, patience: float) -> bool:
        """Cancel calls that have not begun, and wait up to ``patience`` seconds for the rest. True if all
        threads ended."""
        self._closed = True
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if job is not None:
                job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)
