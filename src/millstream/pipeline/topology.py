"""The topology that users import: what is declared in ``dsl``, and how it is run and drawn.

It is above everything that it uses. What is below takes the topology as it is declared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.core.errors import TopologyError
from millstream.core.extras import spark_extra
from millstream.pipeline.dsl import topology as declared
from millstream.pipeline.dsl.load import name_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.client.connect import Connection
    from millstream.pipeline.run.handle import JobHandle
    from millstream.pipeline.run.options import RunOptions
    from millstream.pipeline.run.reporting.progress import BatchProgress
    from millstream.pipeline.run.reporting.totals import JobSummary


class Topology(declared.Topology):
    """A job: its sources, its operators and its sinks."""

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        broker: str | Connection | None = None,
        checkpoint: str | Path | None = None,
        views: str | Path | None = None,
        trigger: str | None = None,
        available_now: bool = False,
        leave_open: bool = False,
        start: str | None = None,
        rebuild: bool = False,
        create_topics: bool = False,
        new_ledger: bool = False,
        reset: Sequence[str] = (),
        skip_lost: bool = False,
        transaction_timeout: str = "5 minutes",
        report_status: bool = True,
        on_progress: Callable[[BatchProgress], None] | None = None,
        master: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        ui: bool = False,
    ) -> JobSummary:
        """Run the job until it ends, or until Ctrl-C or SIGTERM stops it after its current batch. A second
        Ctrl-C does not wait. Returns what the job did. This is what ``millstream run`` does with a file, and
        the options are the same.

            summary = flow.run(broker="127.0.0.1:9092", available_now=True)
            print(summary.rows_in, summary.rows_out)

        ``spark`` is the session to work in, which is left as it was found. If it is left out, the session
        that runs in this process is used or, if there is none, one is started with ``master``,
        ``spark_settings`` and ``ui``, and stopped at the end.

        ``broker`` is an address or a ``millstream.client.Connection``, by default $MILLSTREAM_BROKER or
        ``127.0.0.1:9092``. ``checkpoint`` is the directory for progress and state, by default
        ``.millstream/NAME``. ``views`` is the database for views, by default in the checkpoint.

        ``available_now`` processes what is in the topics now, closes what is still open (windows, waiting
        rows), and ends; with ``leave_open``, that is left for the next run. ``trigger`` starts a batch this
        often. ``start`` is where the first run starts in its input topics (``"earliest"``, ``"@-1d"``).
        ``rebuild`` builds the views again first. ``create_topics`` also creates missing input topics.
        ``skip_lost`` continues if records were deleted before they were read. ``reset`` names operators that
        give up their state. ``new_ledger`` ignores which batches the group's offsets say are done.
        ``transaction_timeout`` is the time after which an unfinished transaction is aborted.
        ``report_status=False`` keeps the job out of the topic ``millstream.jobs``.

        ``on_progress`` is called after every batch, in another thread.
        """
        return self._options(
            spark=spark,
            broker=broker,
            checkpoint=checkpoint,
            views=views,
            trigger=trigger,
            available_now=available_now,
            leave_open=leave_open,
            start=start,
            rebuild=rebuild,
            create_topics=create_topics,
            new_ledger=new_ledger,
            reset=reset,
            skip_lost=skip_lost,
            transaction_timeout=transaction_timeout,
            report_status=report_status,
            on_progress=on_progress,
            master=master,
            spark_settings=spark_settings or {},
            ui=ui,
        ).run_here(self)

    def start(
        self,
        spark: SparkSession | None = None,
        *,
        broker: str | Connection | None = None,
        checkpoint: str | Path | None = None,
        views: str | Path | None = None,
        trigger: str | None = None,
        available_now: bool = False,
        leave_open: bool = False,
        start: str | None = None,
        rebuild: bool = False,
        create_topics: bool = False,
        new_ledger: bool = False,
        reset: Sequence[str] = (),
        skip_lost: bool = False,
        transaction_timeout: str = "5 minutes",
        report_status: bool = True,
        on_progress: Callable[[BatchProgress], None] | None = None,
        master: str | None = None,
        spark_settings: Mapping[str, str] | None = None,
        ui: bool = False,
    ) -> JobHandle:
        """Start the job in the background, and return once it runs. Mistakes are raised here: no broker, a
        session that does not fit, a checkpoint that is in use. The options are those of ``run``. Stop the job
        before the program ends, or use it as a context manager.

            with flow.start(spark, broker="127.0.0.1:9092") as job:
                job.await_termination(timeout=60)
                print(job.status, job.progress)
        """
        return self._options(
            spark=spark,
            broker=broker,
            checkpoint=checkpoint,
            views=views,
            trigger=trigger,
            available_now=available_now,
            leave_open=leave_open,
            start=start,
            rebuild=rebuild,
            create_topics=create_topics,
            new_ledger=new_ledger,
            reset=reset,
            skip_lost=skip_lost,
            transaction_timeout=transaction_timeout,
            report_status=report_status,
            on_progress=on_progress,
            master=master,
            spark_settings=spark_settings or {},
            ui=ui,
        ).run_in_background(self)

    def _options(self, **given: object) -> RunOptions:
        with spark_extra():
            from millstream.pipeline.run.options import RunOptions
        self._name_streams()
        return RunOptions(**given)  # type: ignore[arg-type]  # both signatures are compared in the tests

    def _name_streams(self) -> None:
        """Name streams after the variables that hold them, as ``millstream run`` does for a file."""
        module = sys.modules.get(self.module)
        if module is not None:
            name_streams(self, vars(module))

    def _repr_svg_(self) -> str | None:
        """The drawing that a notebook shows; none as long as there is nothing to draw."""
        from millstream.pipeline.drawing.graph import graph
        from millstream.pipeline.drawing.svg import draw_svg

        self._name_streams()
        try:
            self.check()
        except TopologyError:
            return None  # shown as text: it is not finished
        return draw_svg(graph(self), self.name)
