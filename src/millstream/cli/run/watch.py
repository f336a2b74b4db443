"""``millstream run --watch``: restarts a pipeline whenever its file is saved.

Spark keeps running. Only the file, and the modules beside it that it imports, are loaded again. Every start
uses a scratch checkpoint and another job name, and reads from where the sources begin, so the production job
is not touched. But results go to the topics that the file names, unless --output-prefix is given.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from millstream.cli.terminal.output import note
from millstream.core.errors import MillstreamError
from millstream.pipeline.dsl.load import user_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.cli.run.end_requests import EndRequests
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.run.job import Job
    from millstream.pipeline.run.settings import JobSettings

_LOOK_EVERY = 0.2  # seconds


class SourceFiles:
    """The source files of a pipeline, and whether they have changed."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._modules: dict[str, ModuleType] = {}
        self._stamps: dict[Path, tuple[int, int] | None] = {}
        self.look(loaded=False)

    def look(self, *, loaded: bool) -> None:
        """Remember the current state of the files. If the last load failed, every file in the directory is
        included, because any of them may be the cause.
        """
        self._modules = user_modules()
        files = {Path(str(module.__file__)) for module in self._modules.values()}
        if not loaded:
            files |= set(self.path.parent.glob("*.py"))
        self._stamps = {file: _stamp(file) for file in {self.path, *files}}

    def changed(self) -> list[Path]:
        return [file for file, stamp in self._stamps.items() if _stamp(file) != stamp]

    def forget(self) -> None:
        """Unload the modules, so that the next import loads them again."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None  # an editor may be replacing the file: it will be back in a moment
    return found.st_mtime_ns, found.st_size


class Watched:
    """Runs a pipeline again after every change. ``load`` loads the topology again, and ``settings`` makes the
    settings for a checkpoint and a default file of views.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[], Topology],
        settings: Callable[[str, Path], JobSettings],
        home: Path,
    ) -> None:
        self._files = SourceFiles(path)
        self._load = load
        self._settings = settings
        self._home = home

    def run(self, session: SparkSession, requests: EndRequests) -> int:
        """Start, wait for a change and stop, again and again until Ctrl-C or a command to stop."""
        while not requests:
            job = self._start(session)
            self._wait(job, requests)
            if job is not None:
                print("stopping after this batch ..." if requests else "stopping the job ...", flush=True)
                job.stop(patience=60)
            self._files.forget()
        return 0

    def _start(self, session: SparkSession) -> Job | None:
        """The running job; None if it could not be started, after printing why."""
        from millstream.pipeline.run.job import Job

        self._files.look(loaded=False)
        job: Job | None = None
        try:
            flow = self._load()
            flow.name = f"{flow.name}.watch"
            shutil.rmtree(self._home / "checkpoint", ignore_errors=True)
            job = Job(flow, self._settings(str(self._home / "checkpoint"), self._home / "views.db"))
            for warning in flow.check():
                note(warning)
            for topic in job.prepare():
                print(f"created topic {topic}")
            for line in job.unmatched():
                note(line)
            self._drop_views(job)
            job.start(session)
        except MillstreamError as error:
            if job is not None:
                job.tell(error)
                job.close()
            note(str(error))
            print(f"waiting for the next edit of {self._files.path.name} ...", flush=True)
            return None
        self._files.look(loaded=True)
        print(f"{flow.name} is running from the start of its sources; Ctrl-C ends it", flush=True)
        return job

    def _drop_views(self, job: Job) -> None:
        """Drop the views in the scratch database, because the next edit may change their columns and keys.
        Views in a database that the user named are kept.
        """
        from millstream.views.opening import open_reader, open_store

        path = self._home / "views.db"
        if job.views != path or not path.exists():
            return
        reader, store = open_reader(path), open_store(path)
        try:
            for name, _, _ in reader.views():
                store.drop(name)
        finally:
            reader.close()
            store.close()

    def _wait(self, job: Job | None, requests: EndRequests) -> None:
        """Wait until a file has changed, even if the job fails or ends first."""
        said = job is None
        while not requests:
            if not said and job is not None:
                error = job.failed()
                if error is not None:
                    note(str(error))
                    job.tell(error)
                if error is not None or not job.running:
                    print(f"ended; waiting for the next edit of {self._files.path.name} ...", flush=True)
                    said = True
            if changed := self._files.changed():
                print(f"{', '.join(sorted(file.name for file in changed))} has changed", flush=True)
                return
            time.sleep(_LOOK_EVERY)
