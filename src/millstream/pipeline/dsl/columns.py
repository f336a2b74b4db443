"""PySpark's ``Column`` where a topology takes SQL: it becomes SQL text as soon as it is given.

    payments.where(F.col("eur") > 2)        # the same as payments.where("eur > 2")

So everything behind a declaration (identities of state, plans, drawings, errors, the lowering to Spark) has
one form to know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.core.errors import TopologyError
from millstream.sqltypes.expressions import Expression, NoSqlError, add_functions

if TYPE_CHECKING:
    from pyspark.sql import Column

    Sql: TypeAlias = str | Column  # an SQL expression as text, or as PySpark's Column
    Keys: TypeAlias = Sql | Sequence[Sql]


_NAME = re.compile(r"(\w+)|`((?:[^`]|``)+)`")  # a plain column


class SqlTexts:
    """Takes the SQL of a topology. ``functions`` are the UDFs that its SQL calls, by their names there."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}

    def sql(self, given: Any, what: str, at: str) -> Any:
        """The SQL text of a Column; with its alias, if it has one. Anything else stays as it is."""
        return self._text(given, what, at, lambda found: found.text)

    def condition(self, given: Any, what: str, at: str) -> Any:
        """The SQL text of a Column without its alias."""
        return self._text(given, what, at, lambda found: found.sql)

    def keys(self, given: Any, what: str, at: str) -> Any:
        """Keys with the SQL text of each Column: one, a sequence, or a dict of one side's to the other's."""
        if isinstance(given, Mapping):
            return {self.sql(one, what, at): self.sql(other, what, at) for one, other in given.items()}
        if isinstance(given, list | tuple):
            return [self.sql(one, what, at) for one in given]
        return self.sql(given, what, at)

    def names(self, given: Any, what: str, at: str) -> Any:
        """Names of columns, where only those are possible: one, or a sequence."""
        if isinstance(given, list | tuple):
            return [self.names(one, what, at) for one in given]
        if not is_column(given):
            return given
        text = self.sql(given, what, at)
        match = _NAME.fullmatch(text)
        if match is None:
            raise TopologyError(
                f"{what} must be a column, not {text!r}; compute it before, with select", where=at
            )
        return match[1] or match[2].replace("``", "`")

    def _text(self, given: Any, what: str, at: str, take: Any) -> Any:
        if not is_column(given):
            return given
        found = expression_of(given, what, at)
        try:
            add_functions(self.functions, found.functions)
        except NoSqlError as error:
            raise _refused(what, error, at) from None
        return take(found)


def is_column(given: object) -> bool:
    """True for PySpark's Column. Does not import PySpark."""
    return any(
        kind.__name__ == "Column" and kind.__module__ == "pyspark.sql.column" for kind in type(given).__mro__
    )


def expression_of(given: Any, what: str, at: str) -> Expression:
    """The expression that a Column is. Raises TopologyError if it can't be written as SQL."""
    from millstream.sqltypes.recorded import expression_of_column

    try:
        return expression_of_column(given)
    except NoSqlError as error:
        raise _refused(what, error, at) from None


def _refused(what: str, error: NoSqlError, at: str) -> TopologyError:
    return TopologyError(
        f"{what} is a Column that has no form in SQL: {error}. Give SQL as text, or use an operator, which"
        " is a function of the DataFrame: @stream.operator",
        where=at,
    )
