"""The registry's HTTP interface, which is that of Confluent's registry: one short function per request.

Queries are answered from the store, on the event loop. Those that parse schemas run on threads. Changes go
through the thread that follows the topic. An error is ``{"error_code": 40401, "message": "..."}``, with the
HTTP status that its code begins with.

A subject's name may contain a slash, which a client sends as ``%2F``. So paths are routed as they were sent,
and decoded only where a name is taken from them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.core.errors import InvalidSchema, RegistryRefused
from millstream.core.http_origin import objection, own_names
from millstream.registry.protobuf.schema import ProtobufSchema
from millstream.registry.schema import TYPES, Schema
from millstream.registry.service.registrar import LATEST, Decision, Registrar, refuse, schema_of, told
from millstream.registry.service.schema_topic import SchemaTopic
from millstream.registry.service.store import Version, context_of, schema_fields

_log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
MAX_BODY = 4 * 1024 * 1024  # enough for a schema with its text escaped
_DEFAULT_CONTEXT = "."
_VERSIONS = 'Allowed values are between [1, 2^31-1] and the string "latest"'

Handler = Callable[[Request], Awaitable[Any]]


def application(schemas: SchemaTopic, registrar: Registrar, hosts: Collection[str] = ()) -> ASGIApp:
    """The registry as an ASGI application. ``hosts`` are further host names that requests may use."""
    routed = Starlette(routes=_Api(schemas, registrar).routes(), exception_handlers=_HANDLERS)
    return _Front(_RawPaths(routed), own_names(hosts))


class _Api:
    def __init__(self, schemas: SchemaTopic, registrar: Registrar) -> None:
        self._schemas = schemas
        self._registrar = registrar
        self._store = registrar.store

    def routes(self) -> list[Route]:
        subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
        check = "/compatibility/subjects/{subject}/versions"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/", self.root),
            ("GET", "/subjects", self.subjects),
            ("POST", subject, self.lookup),
            ("DELETE", subject, self.delete_subject),
            ("GET", f"{subject}/metadata", self.latest_with_metadata),
            ("GET", f"{subject}/versions", self.versions),
            ("POST", f"{subject}/versions", self.register),
            ("GET", version, self.version),
            ("DELETE", version, self.delete_version),
            ("GET", f"{version}/schema", self.version_text),
            ("GET", f"{version}/referencedby", self.referenced_by),
            ("GET", "/schemas", self.schemas),
            ("GET", "/schemas/types", self.types),
            ("GET", "/schemas/ids/{id:int}", self.by_id),
            ("GET", "/schemas/ids/{id:int}/schema", self.text_by_id),
            ("GET", "/schemas/ids/{id:int}/subjects", self.subjects_of_id),
            ("GET", "/schemas/ids/{id:int}/versions", self.versions_of_id),
            ("GET", "/schemas/guids/{guid}", self.by_guid),
            ("GET", "/schemas/guids/{guid}/ids", self.ids_of_guid),
            ("POST", check, self.check),
            ("POST", f"{check}/{{version}}", self.check),
            ("GET", "/contexts", self.contexts),
            ("GET", "/v1/metadata/id", self.cluster),
            ("GET", "/v1/metadata/version", self.about),
        ]
        for path in ("/config", "/config/{subject}"):
            table += [
                ("GET", path, self.config),
                ("PUT", path, self.set_config),
                ("DELETE", path, self.delete_config),
            ]
        for path in ("/mode", "/mode/{subject}"):
            table += [
                ("GET", path, self.mode),
                ("PUT", path, self.set_mode),
                ("DELETE", path, self.delete_mode),
            ]
        return [Route(path, _answering(handler), methods=[method]) for method, path, handler in table]

    # Queries and changes -----------------------------------------------------------------------------

    async def _asked(self, question: Callable[[], Any], *, parses: bool = False) -> Any:
        """The answer to a query. If nothing is found, the query is repeated after reading to the topic's
        end."""

        async def ask() -> Any:
            return await asyncio.to_thread(question) if parses else question()

        try:
            return await ask()
        except RegistryRefused as error:
            if error.code // 100 != 404 and not (parses and isinstance(error, InvalidSchema)):
                raise
        await asyncio.wrap_future(self._schemas.catch_up())
        return await ask()

    async def _changed(self, decide: Callable[[], Decision]) -> Any:
        return await asyncio.wrap_future(self._schemas.change(decide))

    # Subjects and versions ---------------------------------------------------------------------------

    async def root(self, request: Request) -> Any:
        return {}

    async def subjects(self, request: Request) -> Any:
        deleted, only = _flag(request, "deleted"), _flag(request, "deletedOnly")
        prefix = request.query_params.get("subjectPrefix", "").removeprefix(":*:")
        found = []
        for subject in self._store.subjects():
            living = bool(self._store.versions(subject))
            if subject.startswith(prefix) and (not living if only else living or deleted):
                found.append(subject)
        return _page(request, found)

    async def versions(self, request: Request) -> Any:
        subject = _subject(request)
        deleted, only = _flag(request, "deleted"), _flag(request, "deletedOnly")
        negative = _flag(request, "deletedAsNegative")

        def ask() -> list[int]:
            there = self._store.versions(subject, deleted=deleted or only or negative)
            if not there:
                refuse(40401, f"Subject '{subject}' not found.")
            if only and not negative:
                there = [each for each in there if each.deleted]
            return [-each.version if negative and each.deleted else each.version for each in there]

        return _page(request, await self._asked(ask))

    async def register(self, request: Request) -> Any:
        subject, body = _subject(request), await _body(request)
        schema, normalize = schema_of(body), _flag(request, "normalize")
        id_, version = _number(body, "id", -1), _number(body, "version", 0)
        return await self._changed(
            lambda: self._registrar.register(
                subject, schema, normalize=normalize, id_=id_, version=max(version, 0)
            )
        )

    async def lookup(self, request: Request) -> Any:
        subject, schema = _subject(request), schema_of(await _body(request))
        normalize, deleted = _flag(request, "normalize"), _flag(request, "deleted")
        return await self._asked(
            lambda: self._registrar.lookup(subject, schema, normalize=normalize, deleted=deleted), parses=True
        )

    async def version(self, request: Request) -> Any:
        found = await self._version(request)
        return {**told(found), "schema": await self._formatted(request, found.subject, found.schema)}

    async def version_text(self, request: Request) -> Any:
        found = await self._version(request)
        return Response(await self._formatted(request, found.subject, found.schema), media_type=CONTENT_TYPE)

    async def _version(self, request: Request) -> Version:
        subject, number, deleted = _subject(request), _version(request), _flag(request, "deleted")
        found: Version = await self._asked(lambda: self._registrar.version(subject, number, deleted=deleted))
        return found

    async def latest_with_metadata(self, request: Request) -> Any:
        subject, deleted = _subject(request), _flag(request, "deleted")
        asked = zip(request.query_params.getlist("key"), request.query_params.getlist("value"), strict=False)
        wanted = dict(asked)

        def ask() -> Version:
            for each in reversed(self._store.versions(subject, deleted=deleted)):
                properties = (each.schema.metadata or {}).get("properties") or {}
                if wanted.items() <= properties.items():
                    return each
            self._registrar.version(subject, LATEST, deleted=deleted)
            raise RegistryRefused(40403, "Schema not found")

        found = await self._asked(ask)
        return {**told(found), "schema": await self._formatted(request, subject, found.schema)}

    async def referenced_by(self, request: Request) -> Any:
        subject, number = _subject(request), _version(request)
        found = await self._asked(lambda: self._registrar.version(subject, number, deleted=True))
        ids = {
            each.id
            for each in self._store.referrers(subject, found.version)
            if not each.deleted or _flag(request, "deleted")
        }
        return _page(request, sorted(ids))

    async def delete_version(self, request: Request) -> Any:
        subject, number, permanent = _subject(request), _version(request), _flag(request, "permanent")
        return await self._changed(
            lambda: self._registrar.delete_version(subject, number, permanent=permanent)
        )

    async def delete_subject(self, request: Request) -> Any:
        subject, permanent = _subject(request), _flag(request, "permanent")
        return await self._changed(lambda: self._registrar.delete_subject(subject, permanent=permanent))

    # Schemas -----------------------------------------------------------------------------------------

    async def schemas(self, request: Request) -> Any:
        prefix, deleted = request.query_params.get("subjectPrefix", ""), _flag(request, "deleted")
        found = []
        for subject in self._store.subjects():
            if subject.startswith(prefix.removeprefix(":*:")):
                versions = self._store.versions(subject, deleted=deleted)
                found += versions[-1:] if _flag(request, "latestOnly") else versions
        return [told(each) for each in _page(request, found)]

    async def types(self, request: Request) -> Any:
        return TYPES

    async def by_id(self, request: Request) -> Any:
        id_ = request.path_params["id"]
        schema = await self._asked(lambda: self._registrar.by_id(id_))
        where = next(self._store.uses(id_), None)
        text = await self._formatted(request, "" if where is None else where.subject, schema)
        answer = {**schema_fields(schema), "schema": text, "guid": schema.guid}
        if where is not None and request.query_params.get("subject"):
            answer |= {"subject": where.subject, "version": where.version}
        return {**answer, "maxId": self._store.max_id} if _flag(request, "fetchMaxId") else answer

    async def text_by_id(self, request: Request) -> Any:
        return Response((await self.by_id(request))["schema"], media_type=CONTENT_TYPE)

    async def subjects_of_id(self, request: Request) -> Any:
        found = await self._uses(request)
        return _page(request, list(dict.fromkeys(each.subject for each in found)))

    async def versions_of_id(self, request: Request) -> Any:
        found = await self._uses(request)
        return _page(request, [{"subject": each.subject, "version": each.version} for each in found])

    async def _uses(self, request: Request) -> list[Version]:
        id_, deleted = request.path_params["id"], _flag(request, "deleted")
        wanted = request.query_params.get("subject")
        found = await self._asked(lambda: self._registrar.uses(id_, deleted=deleted))
        return [each for each in found if wanted is None or each.subject == wanted]

    async def by_guid(self, request: Request) -> Any:
        guid = unquote(request.path_params["guid"])
        id_ = await self._asked(lambda: self._guid(guid))
        schema = self._registrar.by_id(id_)
        where = next(self._store.uses(id_), None)
        text = await self._formatted(request, "" if where is None else where.subject, schema)
        return {**schema_fields(schema), "schema": text, "guid": schema.guid}

    async def ids_of_guid(self, request: Request) -> Any:
        guid = unquote(request.path_params["guid"])
        return [{"context": _DEFAULT_CONTEXT, "id": await self._asked(lambda: self._guid(guid))}]

    def _guid(self, guid: str) -> int:
        id_ = self._store.id_of_guid(guid)
        if id_ is None:
            refuse(40403, f"Schema {guid} not found")
        return id_

    async def _formatted(self, request: Request, subject: str, schema: Schema) -> str:
        """A schema's text in the requested format."""
        form = request.query_params.get("format", "")
        if form == "serialized" and schema.type == "PROTOBUF":
            parsed = await asyncio.to_thread(self._registrar.parsed, subject, schema)
            assert isinstance(parsed, ProtobufSchema)
            return parsed.serialized()
        if form == "resolved" and schema.type == "AVRO" and schema.references:
            parsed = await asyncio.to_thread(self._registrar.parsed, subject, schema)
            return json.dumps(parsed.document(), separators=(",", ":"))  # type: ignore[attr-defined]
        return schema.text

    # Compatibility, levels and modes -----------------------------------------------------------------

    async def check(self, request: Request) -> Any:
        subject, schema = _subject(request), schema_of(await _body(request))
        number = _version(request) if "version" in request.path_params else None
        normalize, verbose = _flag(request, "normalize"), _flag(request, "verbose")
        try:
            problems = await self._asked(
                lambda: self._registrar.compatible(subject, schema, number, normalize=normalize), parses=True
            )
        except InvalidSchema as error:
            if not verbose:
                raise
            problems = [str(error)]
        answer: dict[str, Any] = {"is_compatible": not problems}
        return {**answer, "messages": problems} if verbose else answer

    async def config(self, request: Request) -> Any:
        subject, default = _subject_or_none(request), _flag(request, "defaultToGlobal")
        return await self._asked(lambda: self._registrar.config(subject, default=default))

    async def set_config(self, request: Request) -> Any:
        subject, body = _subject_or_none(request), _object(await _body(request))
        return await self._changed(lambda: self._registrar.set_config(subject, body))

    async def delete_config(self, request: Request) -> Any:
        subject = _subject_or_none(request)
        return await self._changed(lambda: self._registrar.delete_config(subject))

    async def mode(self, request: Request) -> Any:
        subject, default = _subject_or_none(request), _flag(request, "defaultToGlobal")
        return await self._asked(lambda: self._registrar.mode(subject, default=default))

    async def set_mode(self, request: Request) -> Any:
        subject, body = _subject_or_none(request), _object(await _body(request))
        force = _flag(request, "force")
        return await self._changed(lambda: self._registrar.set_mode(subject, body.get("mode"), force=force))

    async def delete_mode(self, request: Request) -> Any:
        subject = _subject_or_none(request)
        return await self._changed(lambda: self._registrar.delete_mode(subject))

    async def contexts(self, request: Request) -> Any:
        others = {context_of(subject) for subject in self._store.subjects()} - {""}
        return [_DEFAULT_CONTEXT, *sorted(others)]

    async def cluster(self, request: Request) -> Any:
        return {"scope": {"path": [], "clusters": {"schema-registry-cluster": self._schemas.topic}}, "id": ""}

    async def about(self, request: Request) -> Any:
        from importlib.metadata import version

        return {"version": f"millstream {version('millstream')}", "commitId": ""}


# ---- requests -----------------------------------------------------------------------------------------


def _subject(request: Request) -> str:
    name = unquote(request.path_params["subject"])
    return name.removeprefix(":.:")  # the default context


def _subject_or_none(request: Request) -> str | None:
    return _subject(request) if "subject" in request.path_params else None


def _version(request: Request) -> int:
    text = unquote(request.path_params["version"])
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) < 2**31:
        refuse(42202, f"The specified version '{text[:100]}' is not a valid version id. {_VERSIONS}")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _page(request: Request, found: list[Any]) -> list[Any]:
    """The part of a list that ``offset`` and ``limit`` select."""
    numbers = []
    for name in ("offset", "limit"):
        text = request.query_params.get(name, "-1")
        try:
            numbers.append(int(text))
        except ValueError:
            raise HTTPException(400, f"{name}={text[:100]!r} is not a number") from None
    offset, limit = max(numbers[0], 0), numbers[1]
    return found[offset : offset + limit] if limit > 0 else found[offset:]


async def _body(request: Request) -> Any:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise HTTPException(413, f"a request of more than {MAX_BODY:,} bytes")
        parts.append(part)
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the request is not JSON: {error}") from None


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise HTTPException(422, "the request must be a JSON object")
    return body


def _number(body: dict[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 2**31:
        raise HTTPException(422, f"{name} must be a number")
    return value


# ---- responses ----------------------------------------------------------------------------------------


def _answering(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        made = await handler(request)
        return made if isinstance(made, Response) else _json(200, made)

    return answer


def _json(status: int, value: Any, headers: Iterable[tuple[str, str]] = ()) -> Response:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return Response(data, status, dict(headers), media_type=CONTENT_TYPE)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RegistryRefused)
    return _json(error.code // 100, {"error_code": error.code, "message": str(error)})


async def _wrong(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = f"HTTP {error.status_code} {error.detail}" if error.status_code in (404, 405) else error.detail
    return _json(
        error.status_code, {"error_code": error.status_code, "message": said}, (error.headers or {}).items()
    )


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed; please report this", request.method, request.url.path, exc_info=error)
    return _json(500, {"error_code": 500, "message": "Internal Server Error"})


_HANDLERS: Any = {RegistryRefused: _refused, HTTPException: _wrong, Exception: _failed}


class _Front:
    """Refuses requests that may not pass at all, before anything else. No web page needs the registry, so
    none may read its responses either. Browsers enforce that, because no header allows it."""

    def __init__(self, application: ASGIApp, names: Collection[str]) -> None:
        self._application = application
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            wrong = objection(scope["method"], Headers(scope=scope), self._names)
            if wrong is not None:
                status, said = wrong
                await _json(status, {"error_code": status, "message": said})(scope, receive, send)
                return
        await self._application(scope, receive, send)


class _RawPaths:
    """Routes requests by the path as it was sent, in which ``%2F`` is not a slash."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            path = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
            scope = {**scope, "path": path if path == "/" else path.rstrip("/")}
        await self._application(scope, receive, send)
