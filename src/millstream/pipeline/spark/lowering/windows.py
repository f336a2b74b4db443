"""Windows as Spark's own operations: a single window, and several windows as one aggregation.

Spark's ``window()`` can occur only once in an aggregation. Where windows share their state, each row first
gets the bounds of every window that it falls into, with the number of that window's declaration. Then all are
one grouping by key, number and bounds. Metadata on the bounds' column tells Spark that its watermark closes
windows and drops their state by these bounds, exactly as for its own ``window()``.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.dsl.declaring import StreamTime
from millstream.pipeline.dsl.expressions import output_name, without_alias
from millstream.pipeline.dsl.graph import StreamNode
from millstream.pipeline.dsl.windows.window import WindowNode
from millstream.pipeline.kernel.channels import TIME_BASIS, WINDOW_END, WINDOW_START
from millstream.pipeline.kernel.grouping import floating_key
from millstream.pipeline.planning.outputs import SharedWindows
from millstream.pipeline.spark.lowering.frames import Frames, lower
from millstream.pipeline.spark.lowering.kernel_frames import check_time
from millstream.pipeline.spark.lowering.rows import ComposedRow, compose
from millstream.pipeline.spark.lowering.stateful import channel_rows, compose_channel

_WHICH = "millstream_window"
_BOUNDS = "millstream_bounds"
_WATERMARK = "spark.watermarkDelayMs"  # EventTimeWatermark.delayKey
# Up to this many windows of a row are written out one by one; beyond that, a loop is shorter than the list.
_WRITTEN_OUT = 24


@lower.register
def window_rows(stream: WindowNode, frames: Frames) -> DataFrame:
    if not stream.state.native:
        return channel_rows(stream, frames)
    return _one_window(stream, _in_time(stream.inputs[0], frames))


@lower.register
def shared_rows(shared: SharedWindows, frames: Frames) -> DataFrame:
    return _shared_windows(shared, _in_time(shared.base, frames))


@compose.register
def compose_window(stream: WindowNode, row: ComposedRow, tag: str, frames: Frames) -> None:
    if isinstance(row.output, SharedWindows):
        condition, row.columns = _picked(row.output, stream)
        row.conditions = [condition]
    else:
        compose_channel(stream, row, tag, frames)


def _in_time(stream: StreamNode, frames: Frames) -> DataFrame:
    """A stream's rows for one of Spark's own windows. Spark recognises the time column by its metadata,
    which a user's function may have lost. Without it, no row would be late and no state be dropped."""
    frame = frames.of(stream)
    check_time(stream, frame)
    assert stream.time is not None
    if _WATERMARK in (frame.schema[stream.time.column].metadata or {}):
        return frame
    return frame.withWatermark(stream.time.column, f"{stream.time.lateness_ms} milliseconds")


def _one_window(stream: WindowNode, frame: DataFrame) -> DataFrame:
    """A single window, as Spark's own aggregation."""
    spec, time = stream.window_spec, stream.inputs[0].time
    assert time is not None, "a window without a time is refused when it is declared"
    keys = _keys(stream, frame)
    if spec.gap_ms is not None:
        bounds = fn.session_window(time.column, f"{spec.gap_ms} milliseconds")
    else:
        slide = spec.every_ms if spec.every_ms is not None else spec.size_ms
        bounds = fn.window(time.column, f"{spec.size_ms} milliseconds", f"{slide} milliseconds")
    # Sorted by name, because Spark's state keeps the values of aggregates in the order of this list.
    aggregates = [fn.expr(sql).alias(name) for name, sql in sorted(stream.sql.items())]
    grouped = frame.groupBy(*keys, bounds.alias("_millstream_window")).agg(*aggregates)
    return grouped.select(
        *(str(output_name(key)) for key in spec.by),
        fn.col("_millstream_window.start").alias(WINDOW_START),
        fn.col("_millstream_window.end").alias(WINDOW_END),
        *stream.aggregates,
        fn.lit(time.basis).alias(TIME_BASIS),
    )


def _shared_windows(shared: SharedWindows, frame: DataFrame) -> DataFrame:
    """The results of all windows: keys, which window, its bounds, and every distinct aggregate."""
    time = shared.base.time
    assert time is not None, "a window without a time is refused when it is declared"
    spec = shared.windows[0].window_spec
    keys = _keys(shared.windows[0], frame)
    each = [
        _falls_into(number, window, conditions, time)
        for number, (window, conditions) in enumerate(zip(shared.windows, shared.conditions, strict=True))
    ]
    positioned = frame.select("*", fn.expr(f"explode(concat({', '.join(each)}))").alias(_BOUNDS))
    bounds = fn.expr(f"struct({_BOUNDS}.start AS start, {_BOUNDS}.end AS end)")
    positioned = positioned.select(
        *frame.columns,
        fn.col(f"{_BOUNDS}.which").alias(_WHICH),
        bounds.alias(_BOUNDS, metadata={_WATERMARK: time.lateness_ms}),
    )
    aggregates = [fn.expr(sql).alias(column) for sql, column in _columns(shared).items()]
    grouped = positioned.groupBy(*keys, _WHICH, _BOUNDS).agg(*aggregates)
    return grouped.select(
        *(str(output_name(key)) for key in spec.by),
        _WHICH,
        fn.col(f"{_BOUNDS}.start").alias(WINDOW_START),
        fn.col(f"{_BOUNDS}.end").alias(WINDOW_END),
        *_columns(shared).values(),
    )


def _keys(window: WindowNode, frame: DataFrame) -> list[Column]:
    """The columns to group by. Floating-point keys are refused: Spark would take them, but the kernel does
    not, and the same window runs there in tests, or once it has to do something that Spark can't."""
    keys = [fn.expr(without_alias(key)).alias(str(output_name(key))) for key in window.window_spec.by]
    for name, kind in frame.select(*keys).dtypes:
        if kind in ("float", "double"):
            raise floating_key(window.name, name, kind, at=window.at)
    return keys


def _picked(shared: SharedWindows, window: WindowNode) -> tuple[str, dict[str, str]]:
    """The condition that selects a window's results from the shared state, and the SQL of each of its
    columns."""
    assert shared.base.time is not None
    columns = _columns(shared)
    made = {str(output_name(key)): f"`{output_name(key)}`" for key in window.window_spec.by}
    made |= {WINDOW_START: WINDOW_START, WINDOW_END: WINDOW_END}
    made |= {name: columns[sql] for name, sql in window.sql.items()}
    made[TIME_BASIS] = f"'{shared.base.time.basis}'"
    return f"{_WHICH} = {shared.windows.index(window)}", made


def _columns(shared: SharedWindows) -> dict[str, str]:
    """A column for every aggregate. What several windows have in common is computed once."""
    expressions = sorted({sql for window in shared.windows for sql in window.sql.values()})
    return {sql: f"millstream_{number}" for number, sql in enumerate(expressions)}


def _falls_into(number: int, window: WindowNode, conditions: tuple[str, ...], time: StreamTime) -> str:
    """The SQL array of the bounds of all windows that a row falls into."""
    spec = window.window_spec
    assert spec.size_ms is not None, "sessions don't share state"
    size = spec.size_ms * 1000
    slide = (spec.every_ms or spec.size_ms) * 1000
    now = f"unix_micros({time.column})"
    last = f"{now} - pmod({now}, {slide})"
    count = -(-size // slide)

    def bounds(back: str) -> str:
        start = f"{last} - {back} * {slide}L"
        ends = f"timestamp_micros({start} + {size}L)"
        return f"struct({number} AS which, timestamp_micros({start}) AS start, {ends} AS end)"

    if count <= _WRITTEN_OUT:
        array = f"array({', '.join(bounds(f'{back}L') for back in range(count))})"
    else:
        array = f"transform(sequence(0L, {count - 1}L), back -> {bounds('back')})"
    if size % slide:
        array = f"filter({array}, one -> one.end > {time.column})"
    if conditions:
        held = " AND ".join(f"({condition})" for condition in conditions)
        array = f"if({held}, {array}, filter({array}, one -> false))"
    return array
