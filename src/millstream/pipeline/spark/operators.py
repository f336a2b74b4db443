"""Runs the user's operators on Spark's DataFrames, and reports their errors at the user's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.load import user_line
from millstream.pipeline.dsl.streams import Operator, Stream
from millstream.pipeline.spark.causes import condensed


def operated(operator: Operator, frame: DataFrame) -> Any:
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


def check_time(stream: Stream, frame: DataFrame) -> None:
    """Refuse a DataFrame that lacks the stream's time column."""
    assert stream.time is not None
    if stream.time.column not in frame.columns:
        raise TopologyError(
            f"{stream.name!r} gives no column {stream.time.column!r}, and that is the time its rows go by."
            " Keep the column, or say which one has the time now: .operator(time='column')",
            where=stream.at,
        )
