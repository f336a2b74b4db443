"""``millstream view``: the tables that pipelines keep."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.cli.help import App, examples
from millstream.cli.options import YesOption
from millstream.cli.output import Output, OutputOption, ask, note, show_json, show_table
from millstream.errors import ConfigError

app = App(help="Views: the tables that pipelines keep. They are read while the pipeline writes them.")

ViewsOption = Annotated[
    str | None,
    typer.Option(
        "--views",
        metavar="FILE|URL",
        help="The database: a SQLite file, or postgresql://... [default: the only one in .millstream]",
        show_default=False,
        envvar="MILLSTREAM_VIEWS",
    ),
]


@app.command(
    "list",
    epilog=examples(("millstream view list", "every view, its key and number of rows")),
)
def list_(views: ViewsOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the views of a pipeline."""
    from millstream.pipeline.views import open_reader

    reader = open_reader(_find(views))
    try:
        found = reader.views()
    finally:
        reader.close()
    if output is Output.JSON:
        show_json([{"view": name, "key": list(key), "rows": rows} for name, key, rows in found])
    elif not found:
        note(f"no views in {reader.where}")
    else:
        show_table(["view", "key", "rows"], [[name, ", ".join(key), rows] for name, key, rows in found])


@app.command(
    "query",
    epilog=examples(
        ('millstream view query "SELECT rule, count(*) FROM blocked_cards GROUP BY rule"', "any SELECT"),
        ("millstream view query blocked_cards", "all of a view"),
        ("millstream view query blocked_cards --key 4716253098710001", "the row of one key"),
        ("millstream view query blocked_cards --output json", "for a program"),
        ("millstream view query blocked_cards --views postgresql://reader@db/fraud", "kept in PostgreSQL"),
    ),
)
def query(
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help="A SELECT, or a view's name for all of it.", show_default=False),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="VALUE", help="Only this key's row; once for each key column."),
    ] = None,
    views: ViewsOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Ask a view, with SQL or by key. Nothing is changed, whatever the SQL says.

    Exits with 1 if a key that was asked for is not there.
    """
    from millstream.pipeline.views import open_reader

    reader = open_reader(_find(views))
    try:
        if key:
            columns, rows = reader.get(sql, key)
        elif sql in {name for name, _, _ in reader.views()}:
            columns, rows = reader.all(sql)
        else:
            columns, rows = reader.query(sql)
    finally:
        reader.close()
    if output is Output.JSON:
        show_json([dict(zip(columns, map(_plain, row), strict=True)) for row in rows])
    else:
        show_table(columns, [[_cell(value) for value in row] for row in rows])
    return 1 if key and not rows else 0


@app.command("drop", epilog=examples(("millstream view drop blocked_cards", "the view and its rows")))
def drop(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
    views: ViewsOption = None,
    yes: YesOption = False,
) -> None:
    """Remove a view and its rows. A pipeline that writes it must be stopped, and makes it again."""
    from millstream.pipeline.views import open_store, shown

    where = _find(views)
    ask(f"Remove view {view!r} from {shown(where)}?", yes=yes)
    store = open_store(where)
    try:
        store.drop(view)
    finally:
        store.close()


def _find(given: str | None) -> str:
    """The database that was named, or the only one there is."""
    if given is not None:
        return given
    found = sorted(Path(".millstream").glob("*/views.db"))
    if len(found) == 1:
        return str(found[0])
    if found:
        raise ConfigError(
            f"there are several databases of views ({', '.join(map(str, found))}); pass one as --views"
        )
    raise ConfigError("there are no views in ./.millstream; say where they are with --views FILE|URL")


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _cell(value: Any) -> str | int | None:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return value if value is None or isinstance(value, int) else str(_plain(value))
