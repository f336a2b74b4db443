"""Before a Spark session runs, PySpark's columns are recorded as SQL text."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import col  # imported by name, before any session

from millstream.pipeline.dsl.expressions import check_sql, columns_used, tokens_of
from millstream.pipeline.sql.nodes import Literal, Unsupported
from millstream.pipeline.sql.parse import parse
from millstream.sqltypes.expressions import NoSqlError, identifier, literal
from millstream.sqltypes.recorded import expression_of_column, recording
from tests.support.columns_both_ways import AGGREGATES, BOTH_WAYS, OF_PYTHON


def recorded(make: Callable[[], Any]) -> Any:
    """A session of another test may be running."""
    with recording(NoSqlError):
        return expression_of_column(make())


@pytest.mark.parametrize(
    ("make", "text"), [*BOTH_WAYS, *AGGREGATES], ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_column_is_the_sql_that_a_person_would_write(make: Callable[[], Any], text: str) -> None:
    assert recorded(make).sql == text
    check_sql(text, None, what="the text")


@pytest.mark.parametrize(("make", "text"), OF_PYTHON, ids=lambda one: one if isinstance(one, str) else "")
def test_a_python_function_has_the_same_name_in_every_process(make: Callable[[], Any], text: str) -> None:
    found = recorded(make)
    assert re.fullmatch(re.escape(text).replace(r"\{\}", "[0-9a-f]{8}"), found.sql)
    assert [udf._name for udf in found.functions.values()] in (["shouted"], ["<lambda>"])


def test_an_alias_is_beside_the_expression() -> None:
    found = recorded(lambda: (col("eur") * 2).alias("twice as much"))
    assert (found.sql, found.alias) == ("eur * 2", "twice as much")
    assert found.text == "eur * 2 AS `twice as much`"


def test_names_that_sql_would_misread_are_quoted() -> None:
    names = {"eur": "eur", "date": "`date`", "a b": "`a b`", "a.b": "a.b", "`a.b`.c": "`a.b`.c", "*": "*"}
    assert {name: recorded(lambda name=name: F.col(name)).sql for name in names} == names


def test_functions_of_one_name_are_refused_unless_they_are_the_same() -> None:
    def made(factor: int) -> Any:
        return F.udf(lambda x: factor * x, "int")

    with pytest.raises(NoSqlError, match="two different Python functions called lambda_"):
        recorded(lambda: made(2)("i") + made(3)("i"))
    once = F.udf(lambda x: x, "int")
    again = F.udf(once.func, "int")
    assert len(recorded(lambda: once("i") + again("i")).functions) == 1
    upper = F.udf(str.upper, "string")
    assert recorded(lambda: upper("s")).sql == "udf_upper(s)", "Spark's own upper stays visible"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: F.col("a").desc(), r"an order \(asc, desc\)"),
        (lambda: F.desc("a"), r"an order \(asc, desc\)"),
        (lambda: F.col("a").withField("b", F.lit(1)), "Column.withField"),
        (lambda: F.col("a").alias("b", "c"), "an alias with several names"),
        (lambda: F.lit(object()), "the literal"),
        (lambda: F.udf(lambda x: x, "int")(x="a"), "keyword arguments"),
    ],
)
def test_what_has_no_sql_is_refused_by_name(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(NoSqlError, match=what):
        recorded(make)


def test_the_test_driver_gives_its_own_reason() -> None:
    with recording(Unsupported), pytest.raises(Unsupported, match="engine='spark'"):
        F.col("a").desc()


def test_pyspark_s_own_mistakes_are_still_told_by_pyspark() -> None:
    with recording(NoSqlError):
        with pytest.raises(ValueError, match="please use '&' for 'and'"):
            bool(F.col("a") > 1)
        assert repr(F.col("a") > 1) == "Column<'a > 1'>"
        assert isinstance(F.col("a"), Column)


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63) + 1, (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)


@given(plain)
def test_a_literal_is_read_back_as_it_was(value: object) -> None:
    found = parse(literal(value).sql)
    assert isinstance(found, Literal)
    assert found.value == value


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_name_is_read_back_as_it_was(name: str) -> None:
    tokens = [(token.kind, token.text) for token in tokens_of(identifier(name))]
    assert columns_used(tokens) == [name] or not columns_used(tokens)
    node: Any = parse(identifier(name))
    assert node.parts == (name,)


PROGRAM = """
from pyspark.sql.functions import col, count, expr, lit, when
from pyspark.sql import functions as F
{late}from millstream import Topology

BIG = col("eur") > 100
price = F.udf(lambda eur: 2 * eur, "double")
flow = Topology("columns")
payments = flow.source("payments", schema="card string, eur double, at timestamp", time="at")
payments.where(BIG).select("*", price("eur").alias("twice")).to_topic("big", key=F.upper("card"))
payments.window(by=col("card"), size="1 minute").agg(n=count("*"), spent=F.sum("eur").cast("int"))\\
    .where(when(col("n") > 5, True).otherwise(False)).to_topic("bursts")
flow.check()
for stream in flow.streams:
    print(stream.about())
print(*[sink.key for sink in flow.sinks])
print(*[stream.state.identity for stream in flow.streams if stream.state is not None])
"""
NO_SESSION = "from pyspark import SparkContext; assert SparkContext._active_spark_context is None\n"


def test_a_file_declares_columns_at_its_top_whatever_was_imported_first(tmp_path: Path) -> None:
    given = PROGRAM.format(late="") + NO_SESSION
    (tmp_path / "flow.py").write_text(given)
    (tmp_path / "first.py").write_text("from millstream import Topology\n" + given)
    said = [
        subprocess.run(
            [sys.executable, "-W", "error", str(tmp_path / name)], capture_output=True, text=True, timeout=120
        )
        for name in ("flow.py", "first.py")
    ]
    assert [one.stderr for one in said] == ["", ""]
    assert said[0].stdout == said[1].stdout, "nothing of one process is in it"
    assert said[0].stdout.splitlines()[1] == "eur > 100"
    assert "CASE WHEN n > 5 THEN true ELSE false END" in said[0].stdout
    assert "upper(card)" in said[0].stdout
