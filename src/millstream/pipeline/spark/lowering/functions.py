"""The user's functions on DataFrames.

A function is given neither the positions of rows nor the rows that only advance the watermark
(row_positions.py): these bypass the function. If the rows that it returns have lost their positions, all rows
that it took bypass it too, to advance the time of each partition. That costs one more read of the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.functions import FunctionChannelNode, FunctionNode
from millstream.pipeline.dsl.load import user_line
from millstream.pipeline.spark.failures import condensed
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import (
    KernelFrames,
    PositionedRows,
    check_time,
    lower_positioned,
)
from millstream.pipeline.spark.row_positions import (
    CLOCK_POSITION,
    EVERY_ROW,
    MADE_POSITION,
    ROW_BY_ROW,
    ROW_POSITION,
)
from millstream.sqltypes.ddl import quoted


@lower.register
def function_rows(stream: FunctionNode, frames: Frames) -> Any:
    made = _called(stream, frames.of(stream.inputs[0]))
    return made if isinstance(made, dict) else frames.counted(stream, made)


@lower.register
def function_channel_rows(stream: FunctionChannelNode, frames: Frames) -> DataFrame:
    return frames.counted(stream, frames.made(stream.inputs[0])[stream.channel_name])


@lower_positioned.register
def positioned_function_rows(stream: FunctionNode, kernels: KernelFrames) -> Any:
    above = kernels.positioned(stream.inputs[0])
    rows = above.frame
    if above.has_clock_rows and not above.behind_state:
        rows = rows.where(f"NOT {ROW_POSITION}.clock")
    hidden = kernels.positions.hide(rows)
    made = _called(stream, hidden)
    if isinstance(made, dict):
        return {name: _placed(stream, one, hidden, above, kernels) for name, one in made.items()}
    return _placed(stream, made, hidden, above, kernels)


@lower_positioned.register
def positioned_function_channel_rows(stream: FunctionChannelNode, kernels: KernelFrames) -> PositionedRows:
    found: PositionedRows = kernels.made(stream.inputs[0])[stream.channel_name]
    return found


def _placed(
    stream: FunctionNode, made: DataFrame, hidden: DataFrame, above: PositionedRows, kernels: KernelFrames
) -> PositionedRows:
    """The rows that a function made, with the positions that they had in ``hidden``."""
    before = stream.inputs[0].time
    assert before is not None
    assert stream.time is not None
    check_time(stream, made)
    steps = kernels.positions.steps(made, hidden)
    if above.behind_state:
        if steps is None or not steps <= EVERY_ROW or stream.time != before:
            raise TopologyError(
                f"operator {stream.name!r} is between two stateful operators and does more than compute"
                " columns from columns, so the first could not tell the second how far time has advanced."
                " Filter with the stream's .where(), or write the results to a topic and read them from"
                " there",
                where=stream.at,
            )
        return PositionedRows(kernels.positions.shown(made), behind_state=True, has_clock_rows=True)
    keeps_positions = steps is not None and steps <= ROW_BY_ROW
    beside = above.frame
    if keeps_positions:
        made = kernels.positions.shown(made)
        if not above.has_clock_rows:
            return PositionedRows(made, lost_positions=above.lost_positions)
        beside = beside.where(f"{ROW_POSITION}.clock")
    else:
        made = made.selectExpr("*", MADE_POSITION)
    time = f"{quoted(before.column)} AS {quoted(stream.time.column)}"
    tells = beside.selectExpr(time, f"{CLOCK_POSITION} AS {ROW_POSITION}")
    return PositionedRows(
        made.unionByName(tells, allowMissingColumns=True),
        has_clock_rows=True,
        lost_positions=above.lost_positions or not keeps_positions,
    )


def _called(operator: FunctionNode, frame: DataFrame) -> Any:
    """What the user's function returns for a DataFrame. Its errors are reported at the user's line."""
    function = operator.function
    try:
        result = function(frame)
        for made in result.values() if isinstance(result, dict) else [result]:
            if isinstance(made, DataFrame):
                _ = made.schema
    except MillstreamError:
        raise
    except Exception as error:
        path = Path(function.__code__.co_filename)
        said = condensed(error)
        raise TopologyError(
            f"operator {operator.name!r} failed: {said}", where=user_line(error, path)
        ) from error
    if operator.channels is None:
        if not isinstance(result, DataFrame):
            raise TopologyError(
                f"operator {operator.name!r} must return a DataFrame; it returned {type(result).__name__}"
                + (" (is a return missing?)" if result is None else ""),
                where=operator.at,
            )
    elif not isinstance(result, dict) or set(result) != set(operator.channels):
        raise TopologyError(
            f"operator {operator.name!r} must return a dict with a DataFrame for each of its channels:"
            f" {', '.join(operator.channels)}",
            where=operator.at,
        )
    return result
