"""SQL on views: a query box, its result as a table or a file, and the REST interface."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from litestar import MediaType, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.exceptions import NotFoundException
from litestar.params import Body, FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from millstream.console.backend import Backend
from millstream.console.links import sql_link
from millstream.console.views.tables import Sql, SqlResult, column_digits, run_sql
from millstream.core.errors import ConfigError
from millstream.views.query import QueryLimits, QueryRefused

Download = Literal["", "csv", "json"]
_IN_URL = 1500  # characters of SQL that fit in a link; longer SQL is posted
_LONGEST_URL = 4000  # characters that fit in a URL even if each of them is escaped
_LONGEST = 100_000
_MOST = 100_000
_SHOWN = QueryLimits()
_FILE = QueryLimits(seconds=30.0, rows=_MOST, bytes=50_000_000)
_SQL = Annotated[str, QueryParameter(max_length=_LONGEST_URL, description="One statement that only reads.")]
_DATABASE = Annotated[
    str, QueryParameter(max_length=2000, description="Which database; optional if there is only one.")
]
_ROWS = Annotated[
    int, QueryParameter(ge=1, le=_MOST, description="How many rows at most; `cut` says if there are more.")
]


@dataclass(frozen=True, slots=True)
class SqlForm:
    sql: str = ""
    database: str = ""
    download: Download = ""


@get("/sql", include_in_schema=False)
async def page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    sql: _SQL = "",
    database: _DATABASE = "",
    download: FromQuery[Download] = "",
) -> Response[Any]:
    return await _shown(request, backend, SqlForm(sql, database, download))


@post("/sql", include_in_schema=False, opt={"reads": True}, status_code=200)
async def run_posted(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    data: Annotated[SqlForm, Body(media_type=RequestEncodingType.URL_ENCODED)],
) -> Response[Any]:
    """The query box posts its form. If the SQL is short enough for a link, redirect to that link."""
    if not data.download and len(data.sql) <= _IN_URL:
        return Redirect(sql_link(data.sql, data.database), status_code=303)
    return await _shown(request, backend, data)


async def _shown(request: Request[Any, Any, Any], backend: Backend, asked: SqlForm) -> Response[Any]:
    views = await backend.views.listed(counted=False)
    result, error = None, None
    if asked.sql.strip():
        try:
            result = await _run(backend, asked.sql, asked.database, _FILE if asked.download else _SHOWN)
        except QueryRefused as refused:
            error = refused
        except NotFoundException as unknown:  # there is no such database
            error = QueryRefused(unknown.detail, asked.sql)
        else:
            if asked.download:
                return _file(result, asked.download)
    return backend.page(
        request,
        backend.screen("views"),
        "sql.html",
        status=200 if error is None else 400,
        live="",
        asked=asked,
        views=views,
        result=result,
        digits=column_digits(result.rows, len(result.columns)) if result else [],
        error=error,
        linkable=len(asked.sql) <= _IN_URL,
    )


@get("/api/sql", tags=["views"], summary="What SQL on views returns")
async def as_json(
    backend: NamedDependency[Backend],
    sql: _SQL,
    database: _DATABASE = "",
    rows: _ROWS = _SHOWN.rows,
) -> SqlResult:
    return await _run(backend, sql, database, _limits(rows))


@post(
    "/api/sql",
    tags=["views"],
    summary="What SQL on views returns: the same, for SQL too long for a URL",
    opt={"reads": True},
    status_code=200,
)
async def as_long_json(backend: NamedDependency[Backend], data: JSONBody[Sql]) -> SqlResult:
    if not 1 <= data.rows <= _MOST:
        raise ConfigError(f"rows: from 1 to {_MOST}, not {data.rows}")
    if len(data.sql) > _LONGEST:
        raise ConfigError(f"sql: {_LONGEST} characters at most, not {len(data.sql)}")
    return await _run(backend, data.sql, data.database, _limits(data.rows))


def _limits(rows: int) -> QueryLimits:
    return (
        replace(_SHOWN, rows=rows) if rows <= _SHOWN.rows else QueryLimits(_FILE.seconds, rows, _FILE.bytes)
    )


async def _run(backend: Backend, sql: str, database: str, limits: QueryLimits) -> SqlResult:
    place = backend.views.place(database)
    return await backend.views.ask(place, lambda reader: run_sql(reader, sql, limits))


def _file(result: SqlResult, kind: Download) -> Response[bytes]:
    """The result as a file. If it was cut off, the file's name says so: it may be all that is kept."""
    name = "result" if result.cut is None else f"result-first-{len(result.rows)}-rows"
    if kind == "csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(result.columns)
        writer.writerows(result.rows)
        content, media = text.getvalue(), "text/csv; charset=utf-8"
    else:
        rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
        content, media = json.dumps(rows, ensure_ascii=False, indent=1), str(MediaType.JSON)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{kind}"', "Cache-Control": "no-store"}
    return Response(content.encode(), media_type=media, headers=headers)


HANDLERS = (page, run_posted, as_json, as_long_json)
