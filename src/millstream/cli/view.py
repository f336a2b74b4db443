"""``millstream view``: lists, queries, watches and drops the views of pipelines."""

from __future__ import annotations

import base64
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import YesOption
from millstream.cli.terminal.output import (
    Output,
    OutputOption,
    ask,
    nobody_reads,
    note,
    say,
    show_json,
    show_table,
)
from millstream.core.errors import ConfigError

if TYPE_CHECKING:
    from millstream.views.watching import ViewChange

app = App(
    help="Query, watch and drop views, the tables that pipelines keep. They can be read while a pipeline "
    "writes them."
)

ViewsOption = Annotated[
    str | None,
    typer.Option(
        "--views",
        metavar="FILE|URL",
        help="The database of views: a SQLite file or postgresql://... [default: the only one in "
        ".millstream]",
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
    from millstream.views.opening import open_reader

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
        typer.Argument(
            metavar="SQL", help="A SELECT, or the name of a view to print all of it.", show_default=False
        ),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            "-k",
            metavar="VALUE",
            help="Only the row with this key. Give it once for each key column.",
        ),
    ] = None,
    views: ViewsOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Query a view with SQL or by key. Nothing is changed, whatever the SQL says.

    The exit code is 1 if the requested key does not exist.
    """
    from millstream.views.opening import open_reader

    reader = open_reader(_find(views))
    try:
        if key:
            columns, rows = reader.get(sql, key)
        elif sql.isidentifier() or sql in {name for name, _, _ in reader.views()}:  # one word is never SQL
            found = reader.present(sql, None)
            columns, rows = found.columns, found.rows
        else:
            columns, rows = reader.query(sql)
    finally:
        reader.close()
    if output is Output.JSON:
        show_json([dict(zip(columns, map(_plain, row), strict=True)) for row in rows])
    else:
        show_table(columns, [[_cell(value) for value in row] for row in rows])
    return 1 if key and not rows else 0


@app.command(
    "watch",
    epilog=examples(
        ("millstream view watch blocked_cards", "its rows, and then every change until Ctrl-C"),
        ("millstream view watch blocked_cards --key 4716253098710001", "of one key"),
        ("millstream view watch blocked_cards --where \"rule = 'burst'\" --from-now", "new ones only"),
        ("millstream view watch blocked_cards --output json | jq .new", "for a program, an object a line"),
        ("millstream view watch blocked_cards --from-start", "every change that is kept"),
    ),
)
def watch(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            "-k",
            metavar="VALUE",
            help="Only the row with this key. Give it once for each key column.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="SQL",
            help="Only rows that match this condition. A row that starts to match is an insert, and one that "
            "stops matching is a delete.",
        ),
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Print every change that is kept, instead of the current rows."),
    ] = False,
    from_now: Annotated[bool, typer.Option("--from-now", help="Leave out the current rows.")] = False,
    number: Annotated[
        int | None, typer.Option("--number", "-n", min=1, metavar="N", help="Stop after this many changes.")
    ] = None,
    views: ViewsOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print a view's rows, then every change as it is committed.

    No change is missed or repeated. Changes are kept for a day, at most 100,000 of them. A watcher that falls
    further behind says so and prints all rows again. If the database goes away, the command waits for it.
    Ctrl-C or `| head` ends it.
    """
    from millstream.core.interrupts import Interrupts
    from millstream.views.watching import Watcher

    if from_start and from_now:
        raise ConfigError("--from-start and --from-now exclude each other")
    left = number
    with (
        Interrupts() as interrupts,
        Watcher(
            _find(views),
            view,
            key=key or (),
            condition=where,
            start="changes" if from_start else "now" if from_now else "rows",
            say=note,
        ) as watcher,
    ):
        while not interrupts and left != 0:
            changes = watcher.read(0.2)[:left]
            if not changes and nobody_reads():
                break
            for change in changes:
                if output is Output.JSON:
                    print(json.dumps(_object(change.as_json()), ensure_ascii=False), flush=True)
                else:
                    say(_line(change), flush=True)
            if left is not None:
                left -= len(changes)


@app.command("drop", epilog=examples(("millstream view drop blocked_cards", "the view and its rows")))
def drop(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
    views: ViewsOption = None,
    yes: YesOption = False,
) -> None:
    """Remove a view and its rows. Stop the pipeline that writes it first; the next run creates it again."""
    from millstream.views.address import shown
    from millstream.views.opening import open_store

    where = _find(views)
    ask(f"Remove view {view!r} from {shown(where)}?", yes=yes)
    store = open_store(where)
    try:
        store.drop(view)
    finally:
        store.close()


def _find(given: str | None) -> str:
    """The database that the user named, or the only one in ``.millstream``."""
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


def _line(change: ViewChange) -> str:
    """A change as a line for people: time, kind, key, and the values that changed."""
    if change.kind == "reset":
        return "-- some changes are no longer kept (or the view was created again); all rows follow again"
    if change.at_ms is None:
        when = "        "
    else:
        when = time.strftime("%H:%M:%S", time.localtime(change.at_ms / 1000))
    key = " ".join(f"{name}={_cell(value)}" for name, value in change.key.items())
    row, before = change.new or change.old or {}, change.old if change.new is not None else None
    shown = []
    for name, value in row.items():
        if name in change.key:
            continue
        if before is None:
            shown.append(f"{name}={_cell(value)}")
        elif before.get(name) != value:
            shown.append(f"{name}={_cell(before.get(name))}->{_cell(value)}")
    return f"{when}  {change.kind:<6}  {key}  {' '.join(shown)}".rstrip()


def _object(values: dict[str, Any]) -> dict[str, Any]:
    """A change with its rows, as values for JSON."""
    return {
        name: _object(value) if isinstance(value, dict) else _plain(value) for name, value in values.items()
    }


def _plain(value: Any) -> Any:
    """A value for JSON. What JSON can't express becomes text, and nested values become objects or lists."""
    from millstream.views.values import JsonText, float_text

    if isinstance(value, float) and not math.isfinite(value):
        return float_text(value)
    if isinstance(value, JsonText):
        return json.loads(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _cell(value: Any) -> str | int | None:
    if isinstance(value, float) and round(value, 2) == value and abs(value) < 1e15:
        return f"{value:,.2f}"  # two digits, where nothing is lost by it
    return value if value is None or isinstance(value, int | str) else str(_plain(value))
