"""PySpark's DataFrame on an Arrow table and the driver's own SQL; every step is computed immediately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import DataFrame as SparkDataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Moment
from millstream.pipeline.sql.compile import Projection
from millstream.pipeline.sql.nodes import (
    Alias,
    AnalysisError,
    Call,
    Cast,
    Literal,
    Node,
    Star,
    Unsupported,
    name_of,
)
from millstream.pipeline.sql.nodes import Column as ColumnNode
from millstream.pipeline.sql.parse import parse
from millstream.pipeline.sql.types import Type, from_arrow
from millstream.testing.columns import bound, column, literal_of, named, node_of, refuse_the_rest, type_of
from millstream.testing.vectorized import map_in_pandas


class DataFrame(SparkDataFrame):
    """Rows that are already computed. ``moment`` is what ``current_timestamp()`` returns. A column may be
    hidden: it does not belong to the DataFrame, but steps that go row by row carry it along. ``steps`` names
    those steps, as Spark does, and is None once there was a step of another kind."""

    def __new__(cls, *args: Any, **kwargs: Any) -> DataFrame:
        return object.__new__(cls)

    def __init__(
        self,
        table: pa.Table,
        moment: Moment,
        hidden: pa.Table | None = None,
        steps: set[str] | None = None,
        known_as: str | None = None,
    ) -> None:
        self._table, self._moment, self._hidden, self.steps = table, moment, hidden, steps
        self._known_as = known_as
        self._types: dict[str, Type] = {field.name: from_arrow(field.type) for field in table.schema}

    def hide(self, name: str) -> DataFrame:
        return DataFrame(
            self._table.drop_columns([name]), self._moment, hidden=self._table.select([name]), steps=set()
        )

    def show_hidden(self) -> DataFrame:
        assert self._hidden is not None
        table = self._table.append_column(self._hidden.schema.field(0), self._hidden.column(0))
        return DataFrame(table, self._moment)

    # ---- looking at it ------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        return list(self._types)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        return [(name, kind.text) for name, kind in self._types.items()]

    @property
    def schema(self) -> Any:
        return from_arrow_schema(self._table.schema)

    @property
    def isStreaming(self) -> bool:  # noqa: N802 - as PySpark has it
        return True

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self._table

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return self._column(item)
        return self.where(item) if isinstance(item, Column) else self.select(*item)

    def __getattr__(self, name: str) -> Column:
        if name.startswith("_") or name not in self._types:
            raise AttributeError(f"'DataFrame' object has no attribute {name!r}")
        return self._column(name)

    def _column(self, name: str) -> Column:
        if not any(name.lower() == own.lower() for own in self.columns):
            raise AnalysisError(f"there is no column {name!r}; the columns are {', '.join(self.columns)}")
        return column(name)

    # ---- steps --------------------------------------------------------------------------------------

    def _projected(self, nodes: list[Node], condition: Node | str | None = None) -> DataFrame:
        table, hidden = self._table, self._hidden
        functions = self._moment.functions
        nodes = [bound(node, functions) for node in nodes]
        if condition is not None:
            condition = bound(parse(condition) if isinstance(condition, str) else condition, functions)
        beside: dict[str, Type] = {}
        if hidden is not None:
            beside = {field.name: from_arrow(field.type) for field in hidden.schema}
            table = pa.Table.from_arrays(
                [*table.columns, *hidden.columns], schema=pa.schema([*table.schema, *hidden.schema])
            )
        asked = tuple(self._types.items()), tuple(nodes), condition, self._known_as, *beside.items()
        made = self._moment.made.get(asked)
        if made is None:
            made = Projection(self._types, nodes, self._moment, condition, beside, self._known_as)
            self._moment.made[asked] = made
        given = made.run(table)
        if hidden is None:
            return DataFrame(given, self._moment)
        steps = {*(self.steps or ()), "Project", *(["Filter"] if condition is not None else [])}
        names = hidden.column_names
        return DataFrame(given.drop_columns(names), self._moment, hidden=given.select(names), steps=steps)

    def select(self, *cols: Any) -> DataFrame:
        listed = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        return self._projected([named(one) for one in listed])

    def selectExpr(self, *expr: Any) -> DataFrame:  # noqa: N802
        listed = expr[0] if len(expr) == 1 and isinstance(expr[0], list) else expr
        return self._projected([named(one) for one in listed])

    def where(self, condition: Any) -> DataFrame:
        asked = condition if isinstance(condition, str) else node_of(condition)
        return self._projected([Star()], asked).alias(self._known_as)

    filter = where

    def withColumn(self, colName: str, col: Any) -> DataFrame:  # noqa: N802, N803
        return self.withColumns({colName: col})

    def withColumns(self, *colsMap: dict[str, Any]) -> DataFrame:  # noqa: N802, N803
        (given,) = colsMap
        new = {name.lower(): Alias(node_of(col), name) for name, col in given.items()}
        nodes: list[Node] = [
            new.pop(name.lower()) if name.lower() in new else ColumnNode((name,)) for name in self.columns
        ]
        return self._projected([*nodes, *new.values()])

    def withColumnRenamed(self, existing: str, new: str) -> DataFrame:  # noqa: N802
        return self.withColumnsRenamed({existing: new})

    def withColumnsRenamed(self, colsMap: dict[str, str]) -> DataFrame:  # noqa: N802, N803
        names = {old.lower(): new for old, new in colsMap.items()}
        return self._projected(
            [Alias(ColumnNode((name,)), names.get(name.lower(), name)) for name in self.columns]
        )

    def drop(self, *cols: Any) -> DataFrame:
        gone = {(one if isinstance(one, str) else str(name_of(node_of(one)))).lower() for one in cols}
        kept = self._table.select([n for n in self.columns if n.lower() not in gone])
        return DataFrame(kept, self._moment, hidden=self._hidden, steps=self.steps)

    def unionByName(self, other: Any, allowMissingColumns: bool = False) -> DataFrame:  # noqa: N802, N803
        assert isinstance(other, DataFrame)
        names = list(dict.fromkeys([*self.columns, *other.columns]))
        missing = [name for name in names if name not in self._types or name not in other._types]
        if missing and not allowMissingColumns:
            raise AnalysisError(f"one side of unionByName has no column {missing[0]!r}")
        kinds: dict[str, Type] = {}
        for name in names:
            one = self._types.get(name, types.VOID)
            found = types.common(one, other._types.get(name, types.VOID))
            if found is None:
                raise AnalysisError(
                    f"column {name!r} is {one.text} on one side, {other._types[name].text} on the other"
                )
            kinds[name] = found
        return DataFrame(pa.concat_tables([self._cast(kinds), other._cast(kinds)]), self._moment)

    def _cast(self, kinds: dict[str, Type]) -> pa.Table:
        nodes: list[Node] = []
        for name, kind in kinds.items():
            own: Node = ColumnNode((name,)) if name in self._types else Literal(None, types.VOID)
            nodes.append(Alias(Cast(own, kind), name))
        return DataFrame(self._table, self._moment)._projected(nodes).toArrow()

    def union(self, other: Any) -> DataFrame:
        assert isinstance(other, DataFrame)
        if len(other.columns) != len(self.columns):
            raise AnalysisError("both sides of a union must have the same number of columns")
        renamed = DataFrame(other.toArrow().rename_columns(self.columns), self._moment)
        return self.unionByName(renamed)

    unionAll = union  # noqa: N815

    def fillna(self, value: Any, subset: Any = None) -> DataFrame:
        given = value if isinstance(value, dict) else dict.fromkeys(_listed(subset) or self.columns, value)
        nodes: list[Node] = []
        for name, kind in self._types.items():
            filling = literal_of(given[name]) if name in given else None
            fits = filling is not None and (
                filling.type == kind or (types.is_number(filling.type) and types.is_number(kind))
            )
            own = ColumnNode((name,))
            filled = Cast(Call("coalesce", (own, filling)), kind) if fits and filling is not None else own
            nodes.append(Alias(filled, name))
        return self._projected(nodes)

    def dropna(self, how: str = "any", thresh: int | None = None, subset: Any = None) -> DataFrame:
        if thresh is not None or how not in ("any", "all"):
            raise Unsupported("dropna with thresh")
        there: list[Node] = [
            Call("isnotnull", (ColumnNode((name,)),)) for name in _listed(subset) or self.columns
        ]
        condition = there[0]
        for one in there[1:]:
            condition = Call("and" if how == "any" else "or", (condition, one))
        return self._projected([Star()], condition)

    def transform(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return func(self, *args, **kwargs)

    def mapInArrow(self, func: Any, schema: Any, *_: Any, **__: Any) -> DataFrame:  # noqa: N802
        wanted = _schema(schema)
        batches = list(func(iter(self._table.combine_chunks().to_batches())))
        made = pa.Table.from_batches(batches) if batches else wanted.empty_table()
        return DataFrame(made.cast(wanted), self._moment)

    def mapInPandas(self, func: Any, schema: Any, *_: Any, **__: Any) -> DataFrame:  # noqa: N802
        return DataFrame(map_in_pandas(func, self._table, _schema(schema)), self._moment)

    def alias(self, alias: str | None) -> DataFrame:
        return DataFrame(self._table, self._moment, self._hidden, self.steps, alias)

    def withWatermark(self, eventTime: str, delayThreshold: str) -> DataFrame:  # noqa: N802, N803
        return self  # here the kernel takes care of time

    def observe(self, observation: Any, *exprs: Any) -> DataFrame:
        return self

    def __repr__(self) -> str:
        return f"DataFrame[{', '.join(f'{name}: {kind}' for name, kind in self.dtypes)}]"


refuse_the_rest(DataFrame, SparkDataFrame)


def _listed(subset: Any) -> list[str]:
    return [subset] if isinstance(subset, str) else list(subset or ())


def _schema(given: Any) -> pa.Schema:
    """The Arrow schema of a StructType, or of a DDL text."""
    from millstream.sqltypes.ddl import from_ddl, quoted

    if isinstance(given, str):
        fields = ",".join(f"{quoted(field.name)}:{field.type}" for field in from_ddl(given).fields)
        given = f"struct<{fields}>"
    return pa.schema(types.to_arrow(type_of(given)))
