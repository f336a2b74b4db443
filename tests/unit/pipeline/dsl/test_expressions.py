"""SQL expressions, as far as they can be judged without Spark."""

from __future__ import annotations

import pytest

from millstream.pipeline.dsl.expressions import (
    ExpressionError,
    check_sql,
    output_name,
    with_columns,
    without_alias,
)

COLUMNS = ("card", "amount", "paid_at", "tags", "shop")


@pytest.mark.parametrize(
    "sql",
    [
        "amount > 5 AND card IS NOT NULL",
        "CASE WHEN amount > 1 THEN 'big' ELSE \"small\" END",
        "cast(amount AS decimal(10,2))",
        "amount * 2 AS twice",
        "amount * 2 twice",
        "count(*)",
        "count_if(amount < 2)",
        "max(if(amount > 300, paid_at, NULL))",
        "paid_at > current_timestamp - INTERVAL 5 MINUTES",
        "paid_at > TIMESTAMP '2026-01-01'",
        "extract(HOUR FROM paid_at) BETWEEN 1 AND 5",
        "exists(tags, tag -> tag = 'x')",
        "shop.name LIKE '%(%'",
        "tags[0] = 'a'",
        "card = 'it''s'",
        "`card` = `amount`",
        "1.5e3D < amount -- a comment (",
        "date_trunc('minute', paid_at)",
    ],
)
def test_sound_sql_is_let_through(sql: str) -> None:
    check_sql(sql, COLUMNS, what="the condition")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "must be an SQL expression"),
        (None, "must be an SQL expression"),
        ("sum(amount", "not closed"),
        ("amount)", "has no opening bracket"),
        ("card = 'x", "quote"),
        ("amount > 5; DROP TABLE x", "without ';'"),
        ("amuont > 5", "did you mean 'amount'"),
        ("shops.name = 'x'", "there is no column 'shops'"),
        ("-- nothing", "only a comment"),
    ],
)
def test_sql_that_cannot_be_right_is_refused(sql: object, says: str) -> None:
    with pytest.raises(ExpressionError, match=says.replace("(", r"\(")):
        check_sql(sql, COLUMNS, what="the condition")


def test_without_known_columns_names_are_left_to_spark() -> None:
    check_sql("anything > 5", None, what="the condition")


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("card", "card"),
        ("amount * 2 AS twice", "twice"),
        ("amount * 2 twice", "twice"),
        ("shop.name", "name"),
        ("amount + 1", None),
        ("CASE WHEN amount > 1 THEN 1 END", None),
    ],
)
def test_the_column_an_expression_gives_is_known_where_it_is_named(sql: str, name: str | None) -> None:
    assert output_name(sql) == name


def test_an_alias_can_be_taken_off() -> None:
    assert without_alias("upper(card) AS card") == "upper(card)"
    assert without_alias("upper(card) card") == "upper(card)"
    assert without_alias("cast(card AS string)") == "cast(card AS string)"
    assert without_alias("CASE WHEN n > 1 THEN 1 END") == "CASE WHEN n > 1 THEN 1 END"


@pytest.mark.parametrize(
    ("sql", "composed"),
    [
        ("n > 5 AND N < 9", "(count(*)) > 5 AND (count(*)) < 9"),
        ("upper(who) = 'n'", "upper((a.b)) = 'n'"),
        ("`n` + n(n)", "(count(*)) + n((count(*)))"),
        ("struct(who AS n)", "struct((a.b) AS n)"),
        ("struct(n, who.n, upper(who))", "struct((count(*)) AS n, (a.b).n, upper((a.b)))"),
        ("who.n", "(a.b).n"),
        ("exists(who, n -> n = 1)", "exists((a.b), n -> n = 1)"),
        ("aggregate(who, 0, (n, x) -> n + x)", "aggregate((a.b), 0, (n, x) -> n + x)"),
        ("to_json(struct(*))", "to_json(struct((count(*)) AS `n`, (a.b) AS `who`))"),
        ("2 * n -- n", "2 * (count(*)) -- n"),
    ],
)
def test_columns_are_replaced_by_what_makes_them_and_nothing_else_is(sql: str, composed: str) -> None:
    assert with_columns(sql, {"n": "count(*)", "who": "a.b"}) == composed
