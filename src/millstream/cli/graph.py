"""``millstream graph``: draws a pipeline, or shows its Spark plan."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.run.options import NameOption, PipelineArgument
from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.output import note

if TYPE_CHECKING:
    from millstream.pipeline.planning.plan import Plan

app = App()


class DrawingFormat(StrEnum):
    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


@app.command(
    epilog=examples(
        ("millstream graph fraud.py", "boxes and arrows, here"),
        ("millstream graph fraud.py --format svg > fraud.svg", "a picture for a document"),
        ("millstream graph fraud.py --format mermaid", "for Markdown that understands Mermaid"),
        ("millstream graph fraud.py --plan", "the Spark queries it becomes"),
    )
)
def graph(
    pipeline: PipelineArgument,
    format: Annotated[
        DrawingFormat, typer.Option("--format", "-F", metavar="text|mermaid|svg", help="The output format.")
    ] = DrawingFormat.TEXT,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show the Spark queries that the pipeline becomes, instead of a drawing."
        ),
    ] = False,
    name: NameOption = None,
) -> None:
    """Draw a pipeline, or show how it will run. This needs no broker.

    The file is checked in the same way as `millstream run` does before it starts Spark. With `--plan`, Spark,
    if installed, also checks every expression for syntax errors, unknown functions and types that don't fit.
    No topic is read or written.
    """
    from millstream.pipeline.drawing.graph import graph as graph_of
    from millstream.pipeline.dsl.load import load_topology
    from millstream.pipeline.planning.plan import plan as plan_of

    flow = load_topology(Path(pipeline), name)
    planned = plan_of(flow)
    for warning in flow.check():
        note(warning)
    if plan:
        _analyse(planned, flow.name)
        print(planned.describe())
    elif format is DrawingFormat.MERMAID:
        print(graph_of(flow).mermaid())
    elif format is DrawingFormat.SVG:
        from millstream.pipeline.drawing.svg import draw_svg

        print(draw_svg(graph_of(flow), flow.name))
    else:
        from millstream.pipeline.drawing.text import draw_text

        print(draw_text(graph_of(flow)))


def _analyse(planned: Plan, name: str) -> None:
    """Let Spark check a plan; raises what it finds wrong. Without Spark, notes that nothing was checked."""
    import importlib.util
    import tempfile

    if importlib.util.find_spec("py4j") is None:
        note("Spark is not installed, so the expressions were not checked: pip install 'millstream[spark]'")
        return
    from millstream.pipeline.run.analysis import analyse
    from millstream.pipeline.spark.jvm import end_engine, start_engine

    with tempfile.TemporaryDirectory(prefix="millstream-plan-") as home:
        spark = start_engine(name, master="local[1]", log_file=Path(home) / "spark.log").result()
        try:
            analyse(spark, planned)
        finally:
            end_engine(spark)
