"""Creates, changes, fills, trims and deletes a topic: forms and the REST interface.

Forms for people and JSON for programs both go through ``changes``. A form that succeeds redirects
to the page that shows the result. A form that fails is shown again as it was filled in, with the error.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter, URLEncodedBody
from litestar.response import Redirect

from millstream.console.backend import Backend
from millstream.console.links import topic_link
from millstream.console.observing.snapshot import TopicState
from millstream.console.problems import problem_of
from millstream.console.topics import changes
from millstream.console.topics.changes import (
    MorePartitions,
    NewRecord,
    NewTopic,
    Produced,
    SettingChanges,
    Trim,
    Trimmed,
)
from millstream.console.topics.listing import TopicQuery, topic_list
from millstream.console.topics.settings import TopicSettings
from millstream.console.topics.topic import TopicLoss, loss_of, partitions_of
from millstream.console.topics.topic_pages import (
    header,
    partitions_shown,
    seen,
    settings_as_json,
    show_settings,
)
from millstream.core.clock import SystemClock
from millstream.core.errors import BrokerUnavailable, ConfigError, MillstreamError

Form = URLEncodedBody[dict[str, Any]]
_GET: Literal[303] = 303  # See Other: the client continues with a GET


def _text(form: dict[str, Any], name: str) -> str:
    """A field of a form, with plain line feeds: browsers send lines that end in CR LF."""
    value = form.get(name, "")
    return (value[-1] if isinstance(value, list) else str(value)).replace("\r\n", "\n")


def _filled(model: type[Any], **fields: Any) -> Any:
    """The fields of a form as a ``model``. Raises ConfigError with the name of a field that is not valid."""
    try:
        return msgspec.convert(
            {name: value for name, value in fields.items() if value is not None}, model, strict=False
        )
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        name = where.rstrip("`")
        raise ConfigError(f"{name}: {what[:1].lower()}{what[1:]}" if name else what) from None


def _refusal(error: MillstreamError) -> tuple[int, str]:
    """The status and the message for a form that was refused. Raises again if the broker is away, which is
    not the form's fault.
    """
    if isinstance(error, BrokerUnavailable):
        raise error
    problem = problem_of(error)
    return problem.status, problem.detail


# Create ----------------------------------------------------------------------------------------------

CREATE_FIELDS = ("name", "partitions", "replicas", "settings")


@post("/topics", include_in_schema=False)
async def create_form(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], data: Form
) -> Response[Any]:
    form = {name: _text(data, name) for name in CREATE_FIELDS}
    try:
        wanted = _filled(
            NewTopic,
            name="-",
            partitions=form["partitions"].strip() or None,
            replicas=form["replicas"].strip() or None,
            settings=_settings(form["settings"]),
        )
        # The name is not validated here: the broker knows best which names it takes.
        wanted = dataclasses.replace(wanted, name=form["name"].strip())
        await backend.ask(lambda admin: changes.create(admin, wanted))
    except MillstreamError as error:
        status, problem = _refusal(error)
        listed = topic_list(await backend.sampler.first(), TopicQuery())
        return backend.page(
            request,
            backend.screen("topics"),
            "topics.html",
            status=status,
            listed=listed,
            create=True,
            done="",
            problem=problem,
            form=form,
        )
    return Redirect(topic_link(wanted.name, "partitions", done="created"), status_code=_GET)


def _settings(text: str) -> dict[str, str]:
    """Settings from lines of ``name=value``."""
    settings = {}
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise ConfigError(f"settings: {line.strip()!r} is not name=value")
            settings[name.strip()] = value.strip()
    return settings


@post("/api/topics", tags=["topics"], summary="Create a topic")
async def create(backend: NamedDependency[Backend], data: JSONBody[NewTopic]) -> TopicState:
    await backend.ask(lambda admin: changes.create(admin, data))
    return (await seen(backend, data.name)).topics[data.name]


# Produce ---------------------------------------------------------------------------------------------

_PRODUCE_FIELDS = ("key", "value", "headers", "partition", "format", "key_format", "tombstone")


@get("/topics/{name:str}/produce", include_in_schema=False)
async def produce_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    key: FromQuery[str] = "",
) -> Response[str]:
    return await _produce_shown(request, backend, name, {"key": key})


async def _produce_shown(
    request: Request[Any, Any, Any],
    backend: Backend,
    name: str,
    form: dict[str, str],
    *,
    status: int = 200,
    problem: str = "",
) -> Response[str]:
    snapshot = await seen(backend, name)
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_produce.html",
        status=status,
        form={**dict.fromkeys(_PRODUCE_FIELDS, ""), **form},
        problem=problem,
        **header(backend, snapshot, name),
    )


@post("/topics/{name:str}/produce", include_in_schema=False)
async def produce_form(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str], data: Form
) -> Response[Any]:
    form = {field: _text(data, field) for field in _PRODUCE_FIELDS}
    await seen(backend, name)
    try:
        record = _filled(
            NewRecord,
            value=None if form["tombstone"] else form["value"],
            key=form["key"] or None,
            headers=changes.parse_headers(form["headers"]),
            partition=form["partition"] or None,
            format=form["format"] or None,
            key_format=form["key_format"] or None,
        )
        sent = await backend.run(lambda: changes.produce(backend.asking, name, record))
    except MillstreamError as error:
        status, problem = _refusal(error)
        return await _produce_shown(request, backend, name, form, status=status, problem=problem)
    link = topic_link(name, f"messages/{sent.partition}/{sent.offset}", done="produced")
    return Redirect(link, status_code=_GET)


@post("/api/topics/{name:str}/messages", tags=["messages"], summary="Produce a record")
async def produce(
    backend: NamedDependency[Backend], name: FromPath[str], data: JSONBody[NewRecord]
) -> Produced:
    await seen(backend, name)
    return await backend.run(lambda: changes.produce(backend.asking, name, data))


# Settings --------------------------------------------------------------------------------------------


@post("/topics/{name:str}/settings", include_in_schema=False)
async def settings_form(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str], data: Form
) -> Response[Any]:
    setting, value = _text(data, "setting"), _text(data, "value").strip()
    reset = _text(data, "action") == "reset"
    await seen(backend, name)
    wanted = SettingChanges({} if reset else {setting: value}, [setting] if reset else [])
    try:
        await backend.ask(lambda admin: changes.alter(admin, name, wanted))
    except MillstreamError as error:
        status, problem = _refusal(error)
        return await show_settings(request, backend, name, status=status, refused=(setting, value, problem))
    done = "reset" if reset else "set"
    return Redirect(topic_link(name, "settings", done=f"{done}:{setting}") + f"#{setting}", status_code=_GET)


@patch("/api/topics/{name:str}/settings", tags=["topics"], summary="Change settings, or reset them")
async def alter(
    backend: NamedDependency[Backend], name: FromPath[str], data: JSONBody[SettingChanges]
) -> TopicSettings:
    await seen(backend, name)
    await backend.ask(lambda admin: changes.alter(admin, name, data))
    told: TopicSettings = await settings_as_json.fn(backend, name)
    return told


# Partitions ------------------------------------------------------------------------------------------


@post("/topics/{name:str}/partitions", include_in_schema=False)
async def partitions_form(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str], data: Form
) -> Response[Any]:
    snapshot = await seen(backend, name)
    try:
        wanted = _filled(MorePartitions, total=_text(data, "total").strip())
        await backend.ask(lambda admin: changes.add_partitions(admin, name, wanted))
    except MillstreamError as error:
        status, problem = _refusal(error)
        return partitions_shown(request, backend, snapshot, name, status=status, problem=problem)
    await backend.sampler.look_now()
    return Redirect(topic_link(name, "partitions", done="added"), status_code=_GET)


@post(
    "/api/topics/{name:str}/partitions",
    tags=["topics"],
    summary="Give a topic more partitions",
    status_code=200,
)
async def add_partitions(
    backend: NamedDependency[Backend], name: FromPath[str], data: JSONBody[MorePartitions]
) -> TopicState:
    await seen(backend, name)
    await backend.ask(lambda admin: changes.add_partitions(admin, name, data))
    return (await backend.sampler.look_now()).topics[name]


# Trim ------------------------------------------------------------------------------------------------


@get("/topics/{name:str}/trim", include_in_schema=False)
async def trim_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    to: FromQuery[str] = "",
    partition: FromQuery[str] = "",
) -> Response[str]:
    """The form of a trim, with a preview of what it would delete."""
    snapshot = await seen(backend, name)
    plan, status, problem = None, 200, ""
    if to:
        try:
            wanted = _filled(Trim, to=to, partition=partition or None)
            plan = await backend.ask(
                lambda admin: changes.plan_trim(admin, name, wanted, SystemClock().now_ms())
            )
        except MillstreamError as error:
            status, problem = _refusal(error)
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_trim.html",
        status=status,
        to=to,
        partition=partition,
        plan=plan,
        problem=problem,
        partitions=partitions_of(snapshot, name),
        loss=loss_of(snapshot, name),
        **header(backend, snapshot, name),
    )


@post("/topics/{name:str}/trim", include_in_schema=False)
async def trim_form(backend: NamedDependency[Backend], name: FromPath[str], data: Form) -> Response[Any]:
    """Delete what the preview showed: up to those offsets, whatever ``to`` means by now."""
    await seen(backend, name)
    starts = {
        int(field.removeprefix("start-")): int(_text(data, field))
        for field in data
        if field.startswith("start-") and field[6:].isdigit() and _text(data, field).isdigit()
    }
    await backend.ask(lambda admin: changes.trim_to(admin, name, starts))
    await backend.sampler.look_closer_now()
    return Redirect(topic_link(name, "partitions", done="trimmed"), status_code=_GET)


@post(
    "/api/topics/{name:str}/trim",
    tags=["topics"],
    summary="Delete the oldest records of a topic",
    status_code=200,
)
async def trim(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    data: JSONBody[Trim],
    dry_run: Annotated[bool, QueryParameter(description="Only report what would be deleted.")] = False,
) -> Trimmed:
    await seen(backend, name)

    def work(admin: Any) -> Trimmed:
        plan = changes.plan_trim(admin, name, data, SystemClock().now_ms())
        if not dry_run:
            changes.trim_to(admin, name, plan.starts)
        return plan

    return await backend.ask(work)


# Delete ----------------------------------------------------------------------------------------------


@get("/topics/{name:str}/delete", include_in_schema=False)
async def delete_page(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Response[str]:
    return await _delete_shown(request, backend, name)


async def _delete_shown(
    request: Request[Any, Any, Any], backend: Backend, name: str, *, status: int = 200, problem: str = ""
) -> Response[str]:
    snapshot = await seen(backend, name)
    return backend.page(
        request,
        backend.screen("topics"),
        "topic_delete.html",
        status=status,
        loss=loss_of(snapshot, name),
        problem=problem,
        **header(backend, snapshot, name),
    )


@post("/topics/{name:str}/delete", include_in_schema=False)
async def delete_form(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str], data: Form
) -> Response[Any]:
    await seen(backend, name)
    if _text(data, "confirm").strip() != name:
        problem = f"type {name} to delete it; nothing was deleted"
        return await _delete_shown(request, backend, name, status=400, problem=problem)
    try:
        await backend.ask(lambda admin: changes.delete(admin, name))
    except MillstreamError as error:
        status, problem = _refusal(error)
        return await _delete_shown(request, backend, name, status=status, problem=problem)
    await backend.sampler.look_now()
    return Redirect(f"/topics?done=deleted:{name}", status_code=_GET)


@delete(
    "/api/topics/{name:str}",
    tags=["topics"],
    summary="Delete a topic, with all its records",
    status_code=200,
)
async def delete_topic(backend: NamedDependency[Backend], name: FromPath[str]) -> TopicLoss:
    lost = loss_of(await seen(backend, name), name)
    await backend.ask(lambda admin: changes.delete(admin, name))
    await backend.sampler.look_now()
    return lost


HANDLERS = (
    create_form,
    create,
    produce_page,
    produce_form,
    produce,
    settings_form,
    alter,
    partitions_form,
    add_partitions,
    trim_page,
    trim_form,
    trim,
    delete_page,
    delete_form,
    delete_topic,
)
